/**
 * Which known software has chains where, and how many.
 *
 * @module
 */
import { nameOfRuleSet, type RuleSetContents } from "../iptables/iptables_rule_set.ts";
import { type ChainOwner, knownChain } from "./known_chains.ts";
import type { OwnState } from "./own_state.ts";

/** Chains of one kind in one table. */
export interface ChainCount {
  readonly owner: ChainOwner;
  readonly label: string;
  readonly table: string;
  /** As {@linkcode nameOfRuleSet} has it. */
  readonly world: string;
  readonly count: number;
}

/** Chains between two pauses. */
const CHAINS_PER_STEP = 256;

/** Counts the known chains of all worlds, but for those that are ours, in short steps. */
export function* countChains(
  worlds: readonly RuleSetContents[],
  own: OwnState,
): Generator<void, ChainCount[]> {
  const counts: ChainCount[] = [];
  let looked = 0;
  for (const { world, dump } of worlds) {
    for (const { name: table, chains } of dump.tables) {
      const kinds = new Map<string, { owner: ChainOwner; count: number }>();
      for (const chain of chains.keys()) {
        if (++looked % CHAINS_PER_STEP === 0) yield;
        const known = knownChain(table, chain);
        if (known === undefined || own.chain?.({ world, table, chain })) continue;
        const kind = kinds.get(known.label);
        if (kind) kind.count++;
        else kinds.set(known.label, { owner: known.owner, count: 1 });
      }
      for (const [label, kind] of kinds) {
        counts.push({ ...kind, label, table, world: nameOfRuleSet(world) });
      }
    }
  }
  return counts;
}

/** For a person: `412 chains KUBE-SVC-… in nat (iptables-nft)`. */
export function describeCount({ label, table, world, count }: ChainCount): string {
  const what = label.endsWith("…")
    ? `${count} chain${count === 1 ? "" : "s"} ${label}`
    : `chain ${label}`;
  return `${what} in ${table} (${world})`;
}
