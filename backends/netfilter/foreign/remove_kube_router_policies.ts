/**
 * Removes the objects of kube-router's network policy controller, in k3s too, and nothing else.
 *
 * @module
 */
import type { CleanupReport } from "../../../lib/engine/data_plane.ts";
import type { PolicyRemovalOptions } from "../../../lib/proxy/host_checks.ts";
import { destroySets } from "../ipset/destroy_sets.ts";
import { listSets } from "../ipset/ipset_runner.ts";
import type { HostEdges } from "./host_contents.ts";
import type { ChainFilter } from "./render_iptables_removal.ts";
import { IPTABLES_RULE_SETS } from "../iptables/iptables_rule_set.ts";
import {
  isKubeRouterPolicyChain,
  isKubeRouterPolicySet,
  isKubeRouterPolicyTable,
} from "./policy_leftovers.ts";
import { RemovalRun } from "./removal_run.ts";
import { removeChains } from "./remove_iptables.ts";
import { removeNftTables } from "./nft_tables.ts";

/**
 * Removes chains, tables of nftables, and then the sets that the chains referred to. Call it while
 * other rules enforce the policies: in between nothing of kube-router's does. A controller that still
 * runs writes its rules again.
 */
export async function removeKubeRouterPolicies(
  edges: HostEdges,
  options: PolicyRemovalOptions,
): Promise<CleanupReport> {
  const run = new RemovalRun(edges, options);
  const isLeftover: ChainFilter = isKubeRouterPolicyChain;
  for (const world of IPTABLES_RULE_SETS) {
    await removeChains(edges, {
      world,
      whose: "kube-router's policy",
      keepJump: (table, { from, to }) => isLeftover(table, to) && !isLeftover(table, from),
      choose: () => isLeftover,
      run,
    });
  }
  await removeNftTables(edges, {
    whose: "kube-router's policy tables",
    isLeftover: isKubeRouterPolicyTable,
    run,
  });
  const seen = await listSets(edges.commands, run.signal);
  if (seen.state === "refused") run.unseen("ipsets", seen.reason);
  if (seen.state === "seen") {
    await destroySets(run, seen.value.filter(isKubeRouterPolicySet));
  }
  return run.report();
}
