/**
 * Reads a table that `iptables-save` cannot print because another program added a rule with `nft`
 * that iptables cannot express. Writing still works there; reading asks for one rule at a time.
 *
 * @module
 */
import { type IptablesTable, ruleText } from "../netfilter/iptables/iptables_objects.ts";
import type { IptablesRunner } from "../netfilter/iptables/iptables_runner.ts";
import type { SavedTable, SavedTables } from "../netfilter/iptables/iptables_save.ts";
import { baseChains, baseJumps } from "./base_chains.ts";
import { KUBELET_FIREWALL } from "./jump_repair.ts";
import type { IptablesRenderOptions } from "./render_options.ts";

type Asked = Pick<IptablesRunner, "hasRule" | "hasRules">;

/** A placeholder for the kubelet's rules, whose text is not needed. */
const UNSEEN = "-j RETURN";

/**
 * Adds what can be found out about unreadable tables: which jumps exist. The chains themselves are
 * unknown, so they are rewritten.
 */
export async function withUnreadable(
  runner: Asked,
  tables: SavedTables,
  options: IptablesRenderOptions,
): Promise<SavedTables> {
  const asked: Partial<Record<IptablesTable, SavedTable>> = {};
  for (const table of ["filter", "mangle", "nat"] as const) {
    if (tables[table].isUnreadable) asked[table] = await askFor(runner, table, options);
  }
  return { ...tables, ...asked };
}

async function askFor(
  runner: Asked,
  table: IptablesTable,
  options: IptablesRenderOptions,
): Promise<SavedTable> {
  const builtIn = new Map<string, readonly string[]>();
  for (const jump of baseJumps(options)) {
    const rule = ruleText(jump.rule);
    if (jump.table !== table || !await runner.hasRule(table, { chain: jump.from, rule })) continue;
    // The last one that is inserted at the top comes first.
    builtIn.set(jump.from, [rule, ...(builtIn.get(jump.from) ?? [])]);
  }
  const chains = new Map<string, readonly string[]>();
  if (table === "filter" && await runner.hasRules(table, KUBELET_FIREWALL)) {
    const present: string[] = [];
    for (const rule of (baseChains(options).filter.get(KUBELET_FIREWALL) ?? []).map(ruleText)) {
      if (await runner.hasRule(table, { chain: KUBELET_FIREWALL, rule })) present.push(rule);
    }
    chains.set(KUBELET_FIREWALL, [UNSEEN, ...present]);
  }
  return { builtIn, chains, isUnreadable: true };
}
