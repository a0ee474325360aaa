/**
 * The jumps of this mode in chains of other programs, as objects. Pure.
 *
 * Those of one chain are one object, since their order counts: if some are missing, there twice or in
 * the wrong order, one commit removes and inserts all of them. Rules of other programs may stand
 * between them. A jump that the kubelet writes too is an object of its own, and so is each leftover of
 * kube-proxy, from another mode or in an older form, which leads to a chain that this mode owns now.
 *
 * @module
 */
import type { KernelObject } from "../../lib/engine/reconciler.ts";
import { type IptablesTable, ruleText } from "../netfilter/iptables/iptables_objects.ts";
import { type SavedTables, targetOf } from "../netfilter/iptables/iptables_save.ts";
import { normalRule } from "../netfilter/iptables/rule_normal_form.ts";
import { baseJumps } from "./base_chains.ts";
import type { IptablesRenderOptions } from "./render_options.ts";

/** The kind of all own jumps of a chain; the name is `table chain`. */
export const JUMPS = "jumps";
/** The kind of a jump by itself; the name is `table chain rule`. */
export const JUMP = "jump";

/** No other software comments its rules so. */
const KUBE_PROXYS_COMMENT = / --comment "(kubernetes|kube-proxy) /;

interface JumpsOfChain {
  readonly table: IptablesTable;
  readonly from: string;
  /** In the order of the chain. */
  readonly own: readonly string[];
  /** Those that the kubelet also writes; it inserts them again wherever it likes. */
  readonly shared: readonly string[];
}

/** The jumps that have to be there. */
export function* wantedJumps(options: IptablesRenderOptions): Generator<KernelObject> {
  for (const { table, from, own, shared } of jumpsByChain(options)) {
    yield { kind: JUMPS, name: `${table} ${from}`, text: own.join("\n") };
    for (const rule of shared) yield { kind: JUMP, name: `${table} ${from} ${rule}`, text: rule };
  }
}

/** The jumps that are there, and leftovers. */
export function* foundJumps(
  options: IptablesRenderOptions,
  tables: SavedTables,
): Generator<KernelObject> {
  for (const { table, from, own, shared } of jumpsByChain(options)) {
    const present = tables[table].builtIn.get(from) ?? [];
    const isOwn = new Set(own.map(normalRule));
    const targets = new Set(own.map(targetOf));
    const found: string[] = [];
    const stale: string[] = [];
    const meanings = new Set<string>();
    for (const rule of present) {
      const meaning = normalRule(rule);
      meanings.add(meaning);
      if (isOwn.has(meaning)) found.push(rule);
      else if (KUBE_PROXYS_COMMENT.test(rule) && targets.has(targetOf(rule))) stale.push(rule);
    }
    if (found.length > 0) yield { kind: JUMPS, name: `${table} ${from}`, text: found.join("\n") };
    for (const rule of shared) {
      if (!meanings.has(normalRule(rule))) continue;
      yield { kind: JUMP, name: `${table} ${from} ${rule}`, text: rule };
    }
    for (const [rule, all] of Map.groupBy(stale, (rule) => rule)) {
      yield { kind: JUMP, name: `${table} ${from} ${rule}`, text: all.join("\n") };
    }
  }
}

function jumpsByChain(options: IptablesRenderOptions): readonly JumpsOfChain[] {
  const groups = Map.groupBy(baseJumps(options), ({ table, from }) => `${table} ${from}`);
  return [...groups.values()].map((group) => ({
    table: group[0]!.table,
    from: group[0]!.from,
    // Each is inserted at the top.
    own: group.filter(({ isShared }) => !isShared).map(({ rule }) => ruleText(rule)).reverse(),
    shared: group.filter(({ isShared }) => isShared).map(({ rule }) => ruleText(rule)),
  }));
}
