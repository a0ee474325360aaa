/**
 * Parses the kernel's log of a packet in the rules of iptables-legacy: `TRACE:
 * nat:KUBE-SERVICES:rule:3 IN= OUT=eth0 SRC=… DST=… … PROTO=TCP SPT=… DPT=…`. Pure.
 *
 * @module
 */
import type { PacketHeader } from "../../../lib/explain/packet_trace.ts";
import { headerOf } from "./trace_event.ts";

/** One line of the log. */
export interface KernelTraceLine {
  readonly table: string;
  readonly chain: string;
  readonly kind: "rule" | "return" | "policy";
  /** Place of the rule in its chain, from 1. */
  readonly number: number;
  readonly header: PacketHeader;
}

const LINE = /\bTRACE: ([^:\s]+):([^:\s]+):(rule|return|policy):(\d{1,9}) (IN=.*)$/;

/** One line; `undefined` for any other. */
export function parseKernelTraceLine(line: string): KernelTraceLine | undefined {
  const [, table, chain, kind, number, fields = ""] = LINE.exec(line) ?? [];
  if (table === undefined || chain === undefined) return undefined;
  const field = (name: string) => new RegExp(`(?:^| )${name}=(\\S*)`).exec(fields)?.[1];
  const header = headerOf({
    source: field("SRC"),
    destination: field("DST"),
    sourcePort: field("SPT"),
    destinationPort: field("DPT"),
    id: field("ID"),
    arrivedBy: field("IN"),
    leavesBy: field("OUT"),
  });
  if (header === undefined) return undefined;
  return { table, chain, kind: kind as KernelTraceLine["kind"], number: Number(number), header };
}
