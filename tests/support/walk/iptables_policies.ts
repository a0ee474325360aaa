/**
 * Returns the effect of the rules on a connection, by the same walk that follows Services. Pure.
 */
import type { Connection } from "../../../lib/policy/judge_connection.ts";
import type { PolicyPlan } from "../../../lib/policy/policy_plan.ts";
import { type WalkedHost, walkIptables } from "./iptables_walk.ts";
import type { PolicyWalk } from "./walked_packet.ts";
import { BASE_JUMPS } from "../../../backends/policy/iptables/base_chains.ts";
import { policyTexts } from "../../../backends/policy/iptables/layout.ts";

/** Rules of table filter by chain, and entries by set. */
interface WalkedTexts {
  readonly chains: ReadonlyMap<string, readonly string[]>;
  readonly sets: ReadonlyMap<string, Iterable<string>>;
}

type WalkOptions = Pick<WalkedHost, "onRule">;

/** Walks the first packet of a connection through FORWARD, or through OUTPUT if the node sends it. */
export function walkPolicies(
  plan: PolicyPlan,
  connection: Connection,
  options: WalkOptions = {},
): PolicyWalk {
  return walkConnection(walkedTexts(plan), connection, options);
}

/** What a plan writes, with the jumps that lead there. */
export function walkedTexts(plan: PolicyPlan): WalkedTexts {
  const { chains, sets } = policyTexts(plan);
  const jumps = BASE_JUMPS.map(({ from, rule }) => [from, [rule]] as const);
  return {
    chains: new Map([...jumps, ...chains]),
    sets: new Map([...sets].map(([name, { entries }]) => [name, entries])),
  };
}

/** As {@linkcode walkPolicies}, through rules from anywhere. */
export function walkConnection(
  { chains, sets }: WalkedTexts,
  { from, to, transport, isFromOwnNode = false }: Connection,
  options: WalkOptions = {},
): PolicyWalk {
  const { protocol, port } = transport ?? { protocol: "ICMP", port: 0 } as const;
  const packet = {
    ...{ source: from, destination: to, protocol, port },
    ...(!isFromOwnNode && { inInterface: "" }),
  };
  const rules = (table: string, chain: string) =>
    table === "filter" ? chains.get(chain) ?? (chain.startsWith("KUBE-") ? undefined : []) : [];
  const [outcome] = walkIptables(rules, packet, {
    ...options,
    isLocal: (address) => isFromOwnNode && address === from,
    isListed: () => false,
    ipvs: {
      entries: (set) => sets.get(set),
      address: () => undefined,
      server: () => undefined,
    },
  });
  if (outcome === undefined) throw new Error(`Cannot walk from ${from} to ${to}: no outcome`);
  return { verdict: outcome.verdict, path: outcome.path };
}
