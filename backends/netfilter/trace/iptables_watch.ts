/**
 * Watches a packet pass the rules of iptables, in the best way that the machine has.
 *
 * @module
 */
import {
  type PacketWatch,
  type StartPacketWatch,
  TraceError,
  type WatchedPacket,
} from "../../../lib/proxy/packet_trace.ts";
import { chooseIptables } from "../iptables_variant.ts";
import type { IptablesPrograms } from "../iptables_programs.ts";
import { tryTool } from "../probe/try_tool.ts";
import { startCounterWatch } from "./counter_watch.ts";
import { MonitorIsBlind, startEventWatch } from "./event_watch.ts";
import { iptablesNftMonitor } from "./iptables_nft_monitor.ts";
import { describeIptablesStep as describe } from "./iptables_words.ts";
import { kernelLogMonitor } from "./kernel_log_monitor.ts";
import { markTableName } from "./mark_table.ts";
import type { TraceEdges } from "./trace_edges.ts";

/** The log tells at once or never. */
const LOG_READY_MS = 1500;

const LOG_IS_SILENT =
  "The kernel's log tells nothing of marked packets: it does so in the initial network namespace " +
  "only, and where net.netfilter.nf_log.2 (IPv6: nf_log.10) names a logger";

/** A watch for packets, in a mode that writes to iptables. */
export function createIptablesTrace(edges: TraceEdges): StartPacketWatch {
  return async (packet, { signal }) => {
    const { family } = packet;
    const choice = await chooseIptables(edges, { family, signal });
    if (choice.programs === undefined) throw new TraceError(`Cannot trace: ${choice.problem}`);
    return await startBest(edges, packet, { programs: choice.programs, signal });
  };
}

async function startBest(
  edges: TraceEdges,
  packet: WatchedPacket,
  { programs, signal }: { readonly programs: IptablesPrograms; readonly signal: AbortSignal },
): Promise<PacketWatch> {
  const { variant, save } = programs;
  const tools = variant === "nft" ? ["nft", "setpriv"] : ["nft", "setpriv", "dmesg"];
  for (const each of tools) {
    const answer = await tryTool(edges, [each, "--version"], { signal });
    if (answer.kind !== "missing") continue;
    const reason = `Single packets can't be watched without the program ${each}`;
    return await startCounterWatch(edges, packet, { save, reason, describe, signal });
  }
  try {
    const table = markTableName(edges.id);
    const monitor = variant === "nft"
      ? iptablesNftMonitor(edges, { save })
      : kernelLogMonitor(edges, packet, { table, save });
    return await startEventWatch(edges, packet, {
      monitor,
      describe,
      signal,
      ...(variant === "legacy" && { readyMs: LOG_READY_MS }),
    });
  } catch (error) {
    if (!(error instanceof TraceError) || signal.aborted) throw error;
    const reason = error instanceof MonitorIsBlind && variant === "legacy"
      ? LOG_IS_SILENT
      : `Single packets can't be watched here: ${error.message}`;
    return await startCounterWatch(edges, packet, { save, reason, describe, signal });
  }
}
