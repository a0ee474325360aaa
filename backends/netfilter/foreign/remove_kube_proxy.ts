import type { Cidr } from "../../../lib/net/cidr.ts";
import type { Clock } from "../../../lib/os/clock.ts";
import type { CommandRunner } from "../../../lib/os/command_runner.ts";
import type { Network } from "../../../lib/os/network.ts";
import type { CleanupReport } from "../../../lib/engine/data_plane.ts";
import { IPTABLES_RULE_SETS } from "../iptables/iptables_rule_set.ts";
import { isKubeProxyTable, removeNftTables } from "./nft_tables.ts";
import { removeCounters } from "../packet_counters.ts";
import { OWN_NOTHING, type OwnState } from "./own_state.ts";
import { removeFromIptables } from "./remove_iptables.ts";
import { removeIpvs } from "./remove_ipvs.ts";
import { RemovalRun } from "./removal_run.ts";

interface RemovalEdges {
  readonly commands: CommandRunner;
  readonly clock: Clock;
  readonly network: Network;
}

export interface RemoveKubeProxyOptions {
  /** Only reports; `commands` of the report are those that would run. */
  readonly dryRun: boolean;
  /** The objects of the running mode. @default {nothing} */
  readonly own?: OwnState;
  /**
   * Virtual servers in these ranges belong to other software (`ipvs.excludeCIDRs`). @default {[]}
   */
  readonly excludeCidrs?: readonly Cidr[];
  readonly signal?: AbortSignal;
}

/**
 * Removes the rules of iptables and ipvs mode from all four rule sets, their packet counters, the
 * tables of nftables mode, and the sets, virtual servers and device of ipvs mode. The order follows
 * references. Continues after failures; missing objects and tools are no failure. The kubelet's
 * chains (`KUBE-FIREWALL`, `KUBE-KUBELET-CANARY`, `KUBE-IPTABLES-HINT`) and foreign objects stay. A
 * running kube-proxy writes its rules again.
 */
export async function removeKubeProxy(
  edges: RemovalEdges,
  { own = OWN_NOTHING, excludeCidrs = [], ...options }: RemoveKubeProxyOptions,
): Promise<CleanupReport> {
  const run = new RemovalRun(edges, options);
  for (const world of IPTABLES_RULE_SETS) await removeFromIptables(edges, { world, own, run });
  const counter = own.counter?.() ? undefined : await removeCounters(edges, run);
  if (counter !== undefined) run.keep(`${counter}: a rule of another program refers to it`);
  await removeNftTables(edges, {
    whose: "kube-proxy's tables",
    isLeftover: (table) => isKubeProxyTable(table) && !own.nftTable?.(table),
    run,
  });
  await removeIpvs(edges, { own, run, excludeCidrs });
  return run.report();
}
