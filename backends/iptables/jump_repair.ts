/**
 * Which jumps are missing, twice there, or out of order. Pure.
 *
 * Where others put their rules among ours is their business. Ours are only put right when they are no
 * longer all there in their own order; then all of one chain go and come again by one commit. What
 * kube-proxy left in another mode, or in an older form, goes: it leads to chains that are ours now.
 *
 * @module
 */
import { type Rule, ruleText } from "../netfilter/iptables_objects.ts";
import type { SavedTables } from "../netfilter/iptables_save.ts";
import { normalRule } from "../netfilter/rule_normal_form.ts";
import { baseChains, baseJumps, type Jump } from "./base_chains.ts";
import type { IptablesRenderOptions } from "./render_options.ts";
import type { RemovedJump } from "./restore_batch.ts";

/** What is to be done about jumps, by one batch. */
export interface JumpRepair {
  readonly removedJumps: readonly RemovedJump[];
  /** In the order of insertion. */
  readonly jumps: readonly Jump[];
}

/** Nothing is to be done. */
export const NO_JUMP_REPAIR: JumpRepair = { removedJumps: [], jumps: [] };

/** The kubelet's chain: what is in it stays there. */
export const KUBELET_FIREWALL = "KUBE-FIREWALL";

/** No other software comments its rules so. */
const KUBE_PROXYS_COMMENT = / --comment "(kubernetes|kube-proxy) /;

/** Compares the jumps that were read with those that have to be there. */
export function repairJumps(options: IptablesRenderOptions, tables: SavedTables): JumpRepair {
  const wanted = baseJumps(options);
  const removedJumps: RemovedJump[] = [];
  const jumps: Jump[] = [...missingInKubelets(options, tables)];
  for (const key of new Set(wanted.map(({ table, from }) => `${table} ${from}`))) {
    const group = wanted.filter(({ table, from }) => `${table} ${from}` === key);
    const repair = repairChain(group, tables);
    removedJumps.push(...repair.removedJumps);
    jumps.push(...repair.jumps);
  }
  return { removedJumps, jumps };
}

/** All jumps of one built-in chain. */
function repairChain(wanted: readonly Jump[], tables: SavedTables): JumpRepair {
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
  const isInOrder = found.length === ownMeanings.length &&
    found.every((rule, index) => normalRule(rule) === ownMeanings[index]);
  if (isInOrder) return { removedJumps: stale, jumps: shared };
  const removed = found.map((rule) => ({ table, from, rule }));
  return { removedJumps: [...stale, ...removed], jumps: [...own, ...shared] };
}

/** Our rule in a chain that the kubelet has made: emptying it would take the kubelet's own away. */
function missingInKubelets(options: IptablesRenderOptions, { filter }: SavedTables): Jump[] {
  const present = filter.chains.get(KUBELET_FIREWALL)?.map(normalRule) ?? [];
  if (present.length === 0) return [];
  const rules = baseChains(options).filter.get(KUBELET_FIREWALL) ?? [];
  return rules.filter((rule) => !present.includes(meaningOf(rule)))
    .map((rule) => ({ table: "filter", from: KUBELET_FIREWALL, rule }));
}

function meaningOf(rule: Rule): string {
  return normalRule(ruleText(rule));
}
