import { tryParseIpAddress } from "../../../lib/net/ip_address.ts";
import type { PacketHeader, TraceEnding, TraceStep } from "../../../lib/proxy/packet_trace.ts";
import type { Clock } from "../../../lib/os/clock.ts";
import type { CommandRunner } from "../../../lib/os/command_runner.ts";
import type { Network } from "../../../lib/os/network.ts";

/** The content of one line of a trace tool. */
export type TraceEvent =
  & TracePlace
  & (
    | { readonly kind: "packet"; readonly header: PacketHeader }
    | {
      readonly kind: "rule";
      readonly rule: string;
      readonly verdict: string;
      /** Number of the rule in its table, where the tool was asked for it. */
      readonly handle?: number;
    }
    | { readonly kind: "policy"; readonly verdict: string }
  );

/** The packet and the place of an event. */
interface TracePlace {
  /** Number of the packet: it may get another one when it comes in again. */
  readonly id: string;
  /** Absent where a tool prints the packet alone. */
  readonly table?: string;
  readonly chain?: string;
}

/** Fields of a header as they were printed. */
interface HeaderText {
  readonly source: string | undefined;
  readonly destination: string | undefined;
  readonly sourcePort?: string | undefined;
  readonly destinationPort?: string | undefined;
  readonly id?: string | undefined;
  readonly arrivedBy?: string | undefined;
  readonly leavesBy?: string | undefined;
}

/** The header; `undefined` where it has no addresses. */
export function headerOf(text: HeaderText): PacketHeader | undefined {
  const source = tryParseIpAddress(text.source ?? "");
  const destination = tryParseIpAddress(text.destination ?? "");
  if (source === undefined || destination === undefined) return undefined;
  return {
    source,
    destination,
    ...number("sourcePort", text.sourcePort),
    ...number("destinationPort", text.destinationPort),
    ...number("id", text.id),
    ...(text.arrivedBy && { arrivedBy: text.arrivedBy }),
    ...(text.leavesBy && { leavesBy: text.leavesBy }),
  };
}

function number<Name extends string>(
  name: Name,
  text: string | undefined,
): Partial<Record<Name, number>> {
  if (text === undefined || !/^\d{1,10}$/.test(text)) return {};
  return { [name]: Number(text) } as Record<Name, number>;
}

/**
 * Returns the outcome of a packet by its last step. The kernel reports `reject` as a drop: only the
 * rule distinguishes them.
 */
export function endingOf(steps: readonly TraceStep[]): TraceEnding {
  const last = steps.at(-1);
  if (last === undefined || !/^(drop|reject)\b/.test(last.verdict)) return "went on";
  return /\breject\b|-j REJECT\b/.test(`${last.verdict} ${last.rule ?? ""}`)
    ? "rejected"
    : "dropped";
}

/** The dependencies of packet watches, and a name that distinguishes concurrent traces. */
export interface TraceEdges {
  readonly clock: Clock;
  readonly commands: CommandRunner;
  readonly network: Network;
  /** The process id and a number: containers on one network may have the same process ids. */
  readonly id: string;
}
