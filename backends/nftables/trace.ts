/**
 * Watches a packet pass the rules of nftables.
 *
 * @module
 */
import type { StartPacketWatch } from "../../lib/proxy/packet_trace.ts";
import { startEventWatch, type TraceMonitor } from "../netfilter/trace/event_watch.ts";
import { parseNftTraceLine } from "../netfilter/trace/nft_monitor_text.ts";
import type { TraceEdges } from "../netfilter/trace/trace_edges.ts";
import { describeNftablesStep } from "./trace_words.ts";

const MONITOR: TraceMonitor = {
  way: "nft monitor trace",
  line: ["nft", "monitor", "trace"],
  parse(line) {
    const event = parseNftTraceLine(line);
    return event === undefined ? [] : [event];
  },
};

/** A watch for packets, in this mode. */
export function createNftablesTrace(edges: TraceEdges): StartPacketWatch {
  return (packet, { signal }) =>
    startEventWatch(edges, packet, { monitor: MONITOR, describe: describeNftablesStep, signal });
}
