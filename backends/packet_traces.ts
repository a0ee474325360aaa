import type { BackendMode } from "../lib/proxy/backend.ts";
import type { StartPacketWatch } from "../lib/explain/packet_trace.ts";
import { createIpvsTrace } from "./ipvs/trace.ts";
import { createIptablesTrace } from "./netfilter/trace/iptables_watch.ts";
import type { TraceEdges } from "./netfilter/trace/trace_edges.ts";
import { createNftablesTrace } from "./nftables/trace.ts";

/**
 * Packet watches by mode. The userspace mode has none: its process reports its connections itself.
 */
export function createPacketTraces(
  { pid, random, ...machine }: Omit<TraceEdges, "id"> & {
    readonly pid: number;
    /** From 0 to 1, as `Math.random`. */
    readonly random: () => number;
  },
): Readonly<Record<Exclude<BackendMode, "userspace">, StartPacketWatch>> {
  const edges = { ...machine, id: `${pid}-${Math.floor(random() * 0x10000).toString(16)}` };
  return {
    iptables: createIptablesTrace(edges),
    ipvs: createIpvsTrace(edges),
    nftables: createNftablesTrace(edges),
  };
}
