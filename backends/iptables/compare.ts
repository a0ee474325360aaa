import type { DataPlaneDifference } from "../../lib/proxy/data_plane_difference.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import { compareChain } from "../netfilter/iptables/compare_chain.ts";
import { compareLists } from "../../lib/proxy/compare_lists.ts";
import { type IptablesTable, ruleText } from "../netfilter/iptables/iptables_objects.ts";
import type { SavedTable, SavedTables } from "../netfilter/iptables/iptables_save.ts";
import { normalRule } from "../netfilter/iptables/rule_normal_form.ts";
import { isServiceChain, TREES } from "./base_chains.ts";
import { chainKey } from "./chain_ref.ts";
import {
  type JumpsOfChain,
  KUBELET_FIREWALL,
  lookAtJumps,
  missingInKubelets,
} from "./jump_repair.ts";
import type { IptablesLayout } from "./layout.ts";
import { prefixOfRule } from "./packet_path.ts";

interface RuleComparisonInput {
  readonly layout: IptablesLayout;
  readonly tables: SavedTables;
  /** Only these ServicePorts, and the shared rules. @default {all} */
  readonly keys?: ReadonlySet<ServicePortKey> | undefined;
}

const TABLES: readonly IptablesTable[] = ["mangle", "filter", "nat"];

/** Compares the rules that were found with the desired ones, object by object, in short steps. */
export function* compareRules(
  { layout, tables, keys }: RuleComparisonInput,
): Generator<void, readonly DataPlaneDifference[]> {
  const differences: DataPlaneDifference[] = [];
  const wanted = new Set<string>();
  for (const ref of layout.chains()) {
    wanted.add(chainKey(ref));
    yield;
    const content = layout.content(ref);
    if (content === undefined) continue;
    const found = tables[ref.table].chains.get(ref.name);
    if (ref.name === KUBELET_FIREWALL && found !== undefined && found.length > 0) continue;
    // Not push(...list): a list of some 100,000 items is too long for arguments.
    for (const each of compareChain({ ...ref, ...content }, found)) differences.push(each);
  }
  for (const table of TABLES) {
    for (const [name, rules] of tables[table].chains) {
      if (wanted.has(chainKey({ table, name })) || !isServiceChain(table, name)) continue;
      const found = rules.join("\n") || "no rules";
      differences.push({ object: "chain", name: `${table} ${name}`, kind: "extra", found });
    }
  }
  differences.push(...compareJumps(layout, tables));
  return differences.filter(({ key }) => key === undefined || keys === undefined || keys.has(key));
}

/** Returns the shape of the existing trees, in the form of {@linkcode IptablesLayout.shape}. */
export function foundShape(tables: SavedTables): readonly string[] {
  const shape: string[] = [];
  for (const [id, { table, root, base, kind }] of Object.entries(TREES)) {
    for (const chain of treeChains(tables[table], { root, base })) {
      for (const rule of tables[table].chains.get(chain) ?? []) {
        if (!/ -[jg] \S+$/.test(rule) || !rule.slice(rule.lastIndexOf(" ") + 1).startsWith(base)) {
          continue;
        }
        const prefix = prefixOfRule(rule, kind);
        if (prefix !== undefined) shape.push(`${id} ${prefix}`);
      }
    }
  }
  return shape;
}

function treeChains(
  { chains }: SavedTable,
  { root, base }: { readonly root: string; readonly base: string },
): readonly string[] {
  return [...chains.keys()].filter((name) => name === root || name.startsWith(base));
}

function compareJumps(
  { options }: IptablesLayout,
  tables: SavedTables,
): readonly DataPlaneDifference[] {
  const differences = lookAtJumps(options, tables).flatMap(compareJumpsOfChain);
  for (const { table, from, rule } of missingInKubelets(options, tables)) {
    const name = `${table} ${from}`;
    differences.push({ object: "rule", name, kind: "missing", wanted: ruleText(rule) });
  }
  return differences;
}

function compareJumpsOfChain(
  { table, from, own, ownMeanings, found, shared, stale }: JumpsOfChain,
): DataPlaneDifference[] {
  const common = { object: "jump", name: `${table} ${from}` };
  const inPlace = own.map(({ rule }) => ruleText(rule)).reverse();
  // A rule with the same target but other conditions replaces it.
  const others = stale.map(({ rule }) => rule);
  const differences = compareLists(ownMeanings, found.map(normalRule))
    .map(({ kind, ...place }): DataPlaneDifference => {
      const wanted = place.wanted === undefined ? undefined : inPlace[place.wanted];
      const at = others.findIndex((rule) =>
        kind === "missing" && targetOf(rule) === targetOf(wanted)
      );
      const [altered] = at < 0 ? [] : others.splice(at, 1);
      const there = place.found === undefined ? altered : found[place.found];
      return {
        ...common,
        kind: altered === undefined ? kind : "altered",
        ...(wanted !== undefined && { wanted }),
        ...(there !== undefined && { found: there }),
      };
    });
  for (const { rule } of shared) {
    differences.push({ ...common, kind: "missing", wanted: ruleText(rule) });
  }
  for (const rule of others) differences.push({ ...common, kind: "extra", found: rule });
  return differences;
}

function targetOf(rule: string | undefined): string | undefined {
  return rule?.slice(rule.lastIndexOf(" ") + 1);
}
