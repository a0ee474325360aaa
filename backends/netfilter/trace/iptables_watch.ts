import type { IpFamily } from "../../../lib/net/ip_address.ts";
import { createSysctl } from "../../../lib/os/sysctl.ts";
import {
  type PacketWatch,
  type StartPacketWatch,
  TraceError,
  type WatchedPacket,
} from "../../../lib/proxy/packet_trace.ts";
import { chooseIptables } from "../iptables/iptables_variant.ts";
import type { IptablesPrograms } from "../iptables/iptables_programs.ts";
import { tryTool } from "../probe/try_tool.ts";
import { startCounterWatch } from "./counter_watch.ts";
import { SilentMonitorError, startEventWatch } from "./event_watch.ts";
import { iptablesNftMonitor } from "./iptables_nft_monitor.ts";
import { describeIptablesStep as describe } from "./describe_iptables_step.ts";
import { kernelLogMonitor } from "./kernel_log_monitor.ts";
import { markTableName } from "./mark_table.ts";
import type { TraceEdges } from "./trace_event.ts";

/** The log works at once or never; otherwise counters are used. */
const LOG_READY_MS = 400;
/** It usually has no events of other network namespaces. */
const FOREIGN_LOG_READY_MS = 100;

const LOG_IS_SILENT =
  "The kernel's log shows no marked packets: it does so only in the initial network namespace " +
  "and if net.netfilter.nf_log.2 (IPv6: nf_log.10) names a logger";

/** Watches packets in a mode of iptables rules, by the best method that the machine has. */
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
  const byCounters = (reason: string) =>
    startCounterWatch(edges, packet, { save, reason, describe, signal });
  const [answers, readyMs] = await Promise.all([
    Promise.all(tools.map((each) => tryTool(edges, [each, "--version"], { signal }))),
    variant === "legacy" ? logReadyMs(edges, packet.family) : undefined,
  ]);
  const missing = tools.find((_, index) => answers[index]?.kind === "missing");
  if (missing !== undefined) {
    return await byCounters(`Single packets can't be watched without the program ${missing}`);
  }
  if (readyMs === 0) return await byCounters(LOG_IS_SILENT);
  try {
    const table = markTableName(edges.id);
    const monitor = variant === "nft"
      ? iptablesNftMonitor(edges, { family: packet.family, table, save })
      : kernelLogMonitor(edges, packet, { table, save });
    return await startEventWatch(edges, packet, {
      monitor,
      describe,
      signal,
      ...(readyMs !== undefined && { readyMs }),
    });
  } catch (error) {
    if (!(error instanceof TraceError) || signal.aborted) throw error;
    const reason = error instanceof SilentMonitorError && variant === "legacy"
      ? LOG_IS_SILENT
      : `Single packets can't be watched here: ${error.message}`;
    return await byCounters(reason);
  }
}

/** Returns the time to wait for the log; 0 if no logger is registered in the kernel. */
async function logReadyMs({ commands }: TraceEdges, family: IpFamily): Promise<number> {
  const logger = `net.netfilter.nf_log.${family === "IPv6" ? 10 : 2}`;
  // There in the initial network namespace alone.
  const ofAll = "net.netfilter.nf_log_all_netns";
  const { values, problems } = await createSysctl(commands).read([logger, ofAll]);
  if (values.get(logger) === "NONE") return 0;
  return problems.get(ofAll)?.kind === "unknown" ? FOREIGN_LOG_READY_MS : LOG_READY_MS;
}
