/**
 * Follows a marked packet through the rules of iptables-legacy in the kernel's log. The kernel
 * logs only for the initial network namespace, unless `net.netfilter.nf_log_all_netns` is set.
 *
 * @module
 */
import type { CommandRunner } from "../../../lib/os/command_runner.ts";
import type { PacketHeader, TraceStep, WatchedPacket } from "../../../lib/proxy/packet_trace.ts";
import type { TraceMonitor } from "./event_watch.ts";
import { type CountedRules, countedRulesReader, verdictOf } from "./rule_counters.ts";
import { targetOf } from "../iptables/iptables_save.ts";
import { headerOf, type TraceEvent } from "./trace_event.ts";

interface KernelLogOptions {
  /** The table that marks the packet. */
  readonly table: string;
  /** E.g. `iptables-legacy-save`, for the text of rules: the log has their numbers only. */
  readonly save: string;
}

const SAVE_TIMEOUT_MS = 60_000;

/** The log as a monitor. */
export function kernelLogMonitor(
  { commands }: { readonly commands: CommandRunner },
  packet: WatchedPacket,
  { table, save }: KernelLogOptions,
): TraceMonitor {
  return {
    way: "the kernel's log (dmesg)",
    lines: [["dmesg", "--follow-new"]],
    parse(line) {
      const parsed = parseKernelTraceLine(line);
      return parsed === undefined ? [] : eventsOf(parsed, packet, table);
    },
    async finish(steps) {
      const reader = countedRulesReader();
      await commands.run(save, ["-c"], {
        timeoutMs: SAVE_TIMEOUT_MS,
        onLine: (line) => reader.take(line),
      });
      return steps.map((step) => withText(step, reader.rules));
    },
  };
}

/**
 * The log has no line for the rule that marks the packet, so every packet that looks like it, or
 * like the beacon, counts as marked.
 */
function eventsOf(
  { table, chain, kind, number, header }: KernelTraceLine,
  packet: WatchedPacket,
  markTable: string,
): readonly TraceEvent[] {
  const id = header.id ? `id ${header.id}` : `port ${header.sourcePort}`;
  const isBeacon = header.sourcePort !== undefined &&
    header.sourcePort === header.destinationPort;
  const mark: TraceEvent = {
    id,
    table: markTable,
    chain: "",
    kind: "rule",
    rule: "",
    verdict: "continue",
  };
  const place = { id, table, chain };
  return [
    { id, kind: "packet", header },
    ...(isBeacon || isWatched(header, packet) ? [mark] : []),
    kind === "policy"
      ? { ...place, kind, verdict: "policy" }
      : { ...place, kind: "rule", rule: `${number}`, verdict: kind },
  ];
}

function isWatched(header: PacketHeader, packet: WatchedPacket): boolean {
  return header.destination === packet.to && header.destinationPort === packet.port &&
    (packet.from === undefined || header.source === packet.from) &&
    (packet.sourcePort === undefined || header.sourcePort === packet.sourcePort);
}

/** The rule in the place of its number. */
function withText(step: TraceStep, rules: CountedRules): TraceStep {
  const { rule: number, verdict, ...rest } = step;
  if (number === undefined) return step;
  const found = rules.get(step.place)?.[Number(number) - 1];
  if (verdict !== "rule") return { ...rest, verdict };
  if (found === undefined) return { ...rest, rule: `rule ${number}`, verdict: "continue" };
  return { ...rest, rule: found.rule, verdict: verdictOf(targetOf(found.rule)) };
}

/** One line of the log. */
interface KernelTraceLine {
  readonly table: string;
  readonly chain: string;
  readonly kind: "rule" | "return" | "policy";
  /** Place of the rule in its chain, from 1. */
  readonly number: number;
  readonly header: PacketHeader;
}

const LINE = /\bTRACE: ([^:\s]+):([^:\s]+):(rule|return|policy):(\d{1,9}) (IN=.*)$/;

/** Parses a line of a traced packet; `undefined` for any other line. */
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
