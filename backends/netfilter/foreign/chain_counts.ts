import { nameOfRuleSet, type RuleSetContents } from "../iptables/iptables_rule_set.ts";
import { knownChain, type Owner } from "./owners.ts";
import type { OwnState } from "./own_state.ts";

/** Chains of one kind in one table. */
export interface ChainCount {
  readonly owner: Owner;
  readonly label: string;
  readonly table: string;
  /** The rule set, as by {@linkcode nameOfRuleSet}. */
  readonly world: string;
  readonly count: number;
}

/** Counts known chains in all rule sets, except those of this process, in short steps. */
export function* countChains(
  worlds: readonly RuleSetContents[],
  own: OwnState,
): Generator<void, ChainCount[]> {
  const counts: ChainCount[] = [];
  for (const { world, dump } of worlds) {
    for (const { name: table, chains } of dump.tables) {
      const kinds = new Map<string, { owner: Owner; count: number }>();
      for (const chain of chains.keys()) {
        yield;
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

/** Formats a count for messages: `412 chains KUBE-SVC-… in nat (iptables-nft)`. */
export function describeCount({ label, table, world, count }: ChainCount): string {
  const what = label.endsWith("…")
    ? `${count} chain${count === 1 ? "" : "s"} ${label}`
    : `chain ${label}`;
  return `${what} in ${table} (${world})`;
}
