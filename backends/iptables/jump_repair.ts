/**
 * Finds jumps that are missing, duplicated or out of order. Pure.
 *
 * Other programs may put their rules between those of this mode. The jumps of a chain are repaired
 * only if some are missing or in the wrong order; one commit then removes and inserts all of them.
 * Leftover jumps of kube-proxy, from another mode or in an older form, are removed because they
 * lead to chains that this mode owns now.
 *
 * @module
 */
import { type IptablesTable, type Rule, ruleText } from "../netfilter/iptables/iptables_objects.ts";
import type { SavedTables } from "../netfilter/iptables/iptables_save.ts";
import { normalRule } from "../netfilter/iptables/rule_normal_form.ts";
import { baseChains, baseJumps, type Jump } from "./base_chains.ts";
import type { IptablesRenderOptions } from "./render_options.ts";
import type { PlacedLine } from "../netfilter/iptables/restore_batch.ts";

/** Changes of jumps in one batch. */
export interface JumpRepair {
  readonly removedJumps: readonly PlacedLine[];
  /** In the order of insertion. */
  readonly jumps: readonly Jump[];
}

/** No change is needed. */
export const NO_JUMP_REPAIR: JumpRepair = { removedJumps: [], jumps: [] };

/** The kubelet's chain, whose rules stay. */
export const KUBELET_FIREWALL = "KUBE-FIREWALL";

/** No other software comments its rules so. */
const KUBE_PROXYS_COMMENT = / --comment "(kubernetes|kube-proxy) /;

/** Compares the existing jumps with the desired ones. */
export function repairJumps(options: IptablesRenderOptions, tables: SavedTables): JumpRepair {
  const removedJumps: PlacedLine[] = [];
  const jumps: Jump[] = [...missingInKubelets(options, tables)];
  for (const chain of lookAtJumps(options, tables)) {
    const repair = repairChain(chain);
    removedJumps.push(...repair.removedJumps);
    jumps.push(...repair.jumps);
  }
  return { removedJumps, jumps };
}

/** The jumps found in a built-in chain that matter for a repair. */
export interface JumpsOfChain {
  readonly table: IptablesTable;
  readonly from: Jump["from"];
  /** Ours, in the order of insertion. */
  readonly own: readonly Jump[];
  /** The meanings of this mode's jumps, in the required order. */
  readonly ownMeanings: readonly string[];
  /** The rules that mean the same as one of these, in the order found. */
  readonly found: readonly string[];
  /** Missing jumps that the kubelet also writes. */
  readonly shared: readonly Jump[];
  /** Jumps that kube-proxy left. */
  readonly stale: readonly PlacedLine[];
}

/** Looks at every built-in chain that has to have jumps. */
export function lookAtJumps(
  options: IptablesRenderOptions,
  tables: SavedTables,
): readonly JumpsOfChain[] {
  const groups = Map.groupBy(baseJumps(options), ({ table, from }) => `${table} ${from}`);
  return [...groups.values()].map((group) => lookAtChain(group, tables));
}

/** All jumps of one built-in chain. */
function repairChain(
  { table, from, own, ownMeanings, found, shared, stale }: JumpsOfChain,
): JumpRepair {
  const isInOrder = found.length === ownMeanings.length &&
    found.every((rule, index) => normalRule(rule) === ownMeanings[index]);
  if (isInOrder) return { removedJumps: stale, jumps: shared };
  const removed = found.map((rule) => ({ table, from, rule }));
  return { removedJumps: [...stale, ...removed], jumps: [...own, ...shared] };
}

function lookAtChain(wanted: readonly Jump[], tables: SavedTables): JumpsOfChain {
  const { table, from } = wanted[0]!;
  const present = tables[table].builtIn.get(from) ?? [];
  const meanings = present.map(normalRule);
  // The kubelet inserts its own again wherever it likes.
  const shared = wanted.filter((jump) => jump.isShared && !meanings.includes(meaningOf(jump.rule)));
  const own = wanted.filter((jump) => !jump.isShared);
  const ownMeanings = own.map(({ rule }) => meaningOf(rule)).reverse();
  const found = present.filter((_, index) => ownMeanings.includes(meanings[index]!));
  const targets = new Set(own.map(({ rule }) => rule.target?.[0]));
  const stale = present.filter((rule, index) =>
    !ownMeanings.includes(meanings[index]!) && KUBE_PROXYS_COMMENT.test(rule) &&
    targets.has(/ -j (\S+)$/.exec(rule)?.[1])
  ).map((rule) => ({ table, from, rule }));
  return { table, from, own, ownMeanings, found, shared, stale };
}

/** Returns own rules missing in a chain of the kubelet. Rewriting the chain would remove its rules. */
export function missingInKubelets(options: IptablesRenderOptions, { filter }: SavedTables): Jump[] {
  const present = filter.chains.get(KUBELET_FIREWALL)?.map(normalRule) ?? [];
  if (present.length === 0) return [];
  const rules = baseChains(options).filter.get(KUBELET_FIREWALL) ?? [];
  return rules.filter((rule) => !present.includes(meaningOf(rule)))
    .map((rule) => ({ table: "filter", from: KUBELET_FIREWALL, rule }));
}

function meaningOf(rule: Rule): string {
  return normalRule(ruleText(rule));
}
