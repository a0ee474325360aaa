/**
 * Takes away what kube-proxy leaves in each of its modes, and nothing else.
 *
 * @module
 */
import type { Cidr } from "../../../lib/net/cidr.ts";
import type { Clock } from "../../../lib/os/clock.ts";
import type { CommandRunner } from "../../../lib/os/command_runner.ts";
import type { Network } from "../../../lib/os/network.ts";
import type { CleanupReport } from "../../../lib/controller/data_plane.ts";
import { IPTABLES_RULE_SETS } from "../iptables/iptables_rule_set.ts";
import { deletionText } from "../nft/nft_objects.ts";
import { isKubeProxyTable, listNftTables } from "./nft_tables.ts";
import { removeCounters } from "../packet_counters.ts";
import { OWN_NOTHING, type OwnState } from "./own_state.ts";
import { removeFromIptables } from "./remove_iptables.ts";
import { removeIpvs } from "./remove_ipvs.ts";
import { RemovalRun } from "./removal_run.ts";

/** The machine, as far as it is looked at and changed. */
interface RemovalEdges {
  readonly commands: CommandRunner;
  readonly clock: Clock;
  readonly network: Network;
}

/** How it is removed. */
export interface RemoveKubeProxyOptions {
  /** Only tells what it would do; `commands` of the report are then what it would run. */
  readonly dryRun: boolean;
  /** What the mode that runs keeps for itself. @default {nothing} */
  readonly own?: OwnState;
  /** Virtual servers in here are somebody else's (`ipvs.excludeCIDRs`). @default {[]} */
  readonly excludeCidrs?: readonly Cidr[];
  readonly signal?: AbortSignal;
}

/**
 * Removes the rules of iptables and ipvs mode from all four rule sets, the packet counters that they
 * referred to, the tables of nftables mode, and the sets, virtual servers and device of ipvs mode, in
 * this order: what refers to something goes before it. Each part is removed whether or not another one failed. What is gone already and what this machine has no tool
 * for is no failure. What is kubelet's (`KUBE-FIREWALL`, `KUBE-KUBELET-CANARY`, `KUBE-IPTABLES-HINT`)
 * stays, as does everything of others. A kube-proxy that runs writes its rules anew.
 */
export async function removeKubeProxy(
  edges: RemovalEdges,
  { own = OWN_NOTHING, excludeCidrs = [], ...options }: RemoveKubeProxyOptions,
): Promise<CleanupReport> {
  const run = new RemovalRun(edges, options);
  for (const world of IPTABLES_RULE_SETS) await removeFromIptables(edges, { world, own, run });
  const counter = own.counter?.() ? undefined : await removeCounters(edges, run);
  if (counter !== undefined) run.keep(`${counter}: a rule of another program refers to it`);
  await removeNftTables(edges, { own, run });
  await removeIpvs(edges, { own, run, excludeCidrs });
  return run.report();
}

async function removeNftTables(
  { commands }: RemovalEdges,
  { own, run }: { readonly own: OwnState; readonly run: RemovalRun },
): Promise<void> {
  const seen = await listNftTables(commands, run.signal);
  if (seen.state === "refused") run.unseen("tables of nftables", seen.reason);
  if (seen.state !== "seen") return;
  const tables = seen.value.filter((table) => isKubeProxyTable(table) && !own.nftTable?.(table));
  if (tables.length === 0) return;
  await run.do("kube-proxy's tables of nftables", {
    command: ["nft", "-f", "-"],
    input: () => tables.map(deletionText),
    removes: tables.map(({ family, name }) => `table ${family} ${name} (nftables)`),
  });
}
