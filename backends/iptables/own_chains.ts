/**
 * Finds and removes the chains of this mode. Many have the names of kube-proxy's chains; chains
 * that only this mode has distinguish the two.
 *
 * @module
 */
import { jumpsOf, type SavedTables } from "../netfilter/iptables/iptables_save.ts";
import { removeCounters } from "../netfilter/packet_counters.ts";
import { RemovalRun } from "../netfilter/foreign/removal_run.ts";
import { type ChainFilter, removeChains } from "../netfilter/foreign/remove_chains.ts";
import type { IpFamily } from "../../lib/net/ip_address.ts";
import type { Clock } from "../../lib/os/clock.ts";
import type { CommandRunner } from "../../lib/os/command_runner.ts";
import type { CleanupReport } from "../../lib/engine/data_plane.ts";
import { CANARY, isServiceChain, KUBELET_FIREWALL, MARK_MASQ, TREES } from "./base_chains.ts";

interface OwnChainsRemoval {
  readonly family: IpFamily;
  /** Only reports the removals. */
  readonly dryRun: boolean;
}

/** Chains of fixed name that kube-proxy has as well. */
const SHARED_NAMES: Readonly<Record<string, readonly string[]>> = {
  mangle: [CANARY],
  filter: [
    CANARY,
    "KUBE-FORWARD",
    TREES.refused.root,
    TREES.refusedExternal.root,
    TREES.firewall.root,
    TREES.healthChecks.root,
  ],
  nat: [CANARY, MARK_MASQ, "KUBE-POSTROUTING", TREES.services.root, TREES.nodePorts.root],
};
const KUBE_PROXY_SERVICE_CHAIN = /^KUBE-(SVC|SVL|EXT|FW|SEP)-/;
/** Chains that the kubelet creates in mangle. */
const KUBELET_CHAINS = ["KUBE-IPTABLES-HINT", "KUBE-KUBELET-CANARY"];

/** Removes everything that this mode adds in a family, in both variants, and nothing else. */
export async function removeOwnChains(
  edges: { readonly commands: CommandRunner; readonly clock: Clock },
  { family, dryRun }: OwnChainsRemoval,
): Promise<CleanupReport> {
  const run = new RemovalRun(edges, { dryRun });
  await removeChains(edges, run, {
    family,
    whose: "kube-relay's",
    isLeftover: mayBeOurs,
    choose: ownChainsOf,
  });
  // A preview names them after the rules of kube-proxy, which may refer to them too.
  if (!dryRun) await removeCounters(edges, run);
  return run.report();
}

/**
 * Selects the chains of this mode. Chains with kube-proxy's names belong to it if they lead to
 * chains that only this mode has: a kube-proxy that ran later would have rewritten them.
 */
function ownChainsOf(saved: SavedTables): ChainFilter {
  const tables = Object.entries(saved);
  const has = (isSought: (chain: string, table: string) => boolean) =>
    tables.some(([table, { chains }]) => chains.keys().some((chain) => isSought(chain, table)));
  const isInForce = tables.some(([name, table]) =>
    jumpsOf(table).some(({ from, to }) => isOursAlone(name, to) && !isOursAlone(name, from))
  );
  const isHere = has((chain, table) => isOursAlone(table, chain));
  const hasCanary = has((chain) => chain === CANARY);
  // The ipvs mode takes the entry points over and the canaries away. Where a canary is, another
  // iptables mode may be in force, to which the chain belongs then.
  const hasFirewall = isInForce || (isHere && !hasCanary);
  const hasKubelet = has((chain) => KUBELET_CHAINS.includes(chain));
  // Without a kubelet, its chain exists only for the one rule of this mode.
  const isMartianRuleAlone = (saved.filter.chains.get(KUBELET_FIREWALL) ?? []).length <= 1;
  return (table, chain) => {
    if (isOursAlone(table, chain)) return true;
    if (chain === KUBELET_FIREWALL) {
      return table === "filter" && hasFirewall && !hasKubelet && isMartianRuleAlone;
    }
    return isInForce && mayBeOurs(table, chain);
  };
}

function isOursAlone(table: string, chain: string): boolean {
  if (table !== "nat" && table !== "filter") return false;
  if (chain === TREES.hairpin.root || chain === TREES.refusedNodePorts.root) return true;
  return isServiceChain(table, chain) && !KUBE_PROXY_SERVICE_CHAIN.test(chain);
}

function mayBeOurs(table: string, chain: string): boolean {
  if (SHARED_NAMES[table]?.includes(chain) || isOursAlone(table, chain)) return true;
  if (table === "filter") return chain === KUBELET_FIREWALL;
  return table === "nat" && KUBE_PROXY_SERVICE_CHAIN.test(chain);
}
