/**
 * Watches a packet pass the rules of nftables.
 *
 * @module
 */
import type { StartPacketWatch, WatchedPacket } from "../../lib/explain/packet_trace.ts";
import { startEventWatch, type TraceMonitor } from "../netfilter/trace/event_watch.ts";
import { markTableName } from "../netfilter/trace/mark_table.ts";
import { nftMonitorLines } from "../netfilter/trace/nft_monitor_lines.ts";
import { parseNftTraceLines } from "../netfilter/trace/nft_monitor_text.ts";
import { listRulesets, tellUnknownRules } from "../netfilter/trace/rule_listing.ts";
import type { TraceEdges } from "../netfilter/trace/trace_edges.ts";
import { describeNftablesStep } from "./describe_trace_step.ts";

/** A watch for packets, in this mode. */
export function createNftablesTrace(edges: TraceEdges): StartPacketWatch {
  return (packet, { signal }) =>
    startEventWatch(edges, packet, {
      monitor: monitorOf(edges, packet),
      describe: describeNftablesStep,
      signal,
    });
}

function monitorOf({ commands, id }: TraceEdges, { family }: WatchedPacket): TraceMonitor {
  return {
    way: "nft monitor trace",
    lines: nftMonitorLines({ family, table: markTableName(id) }),
    parse: parseNftTraceLines,
    finish: (steps) => tellUnknownRules(steps, (chains) => listRulesets(commands, chains)),
  };
}
