/**
 * Compares one chain of iptables with the wanted one. Pure.
 *
 * @module
 */
import type { DataPlaneDifference } from "../../../lib/proxy/data_plane_difference.ts";
import { compareLists } from "../../../lib/proxy/compare_lists.ts";
import { isSameRule, normalRule } from "./rule_normal_form.ts";

/** A chain with its rules, as lines without its name. */
interface WantedChain<Owner> {
  readonly table: string;
  readonly name: string;
  readonly rules: readonly string[];
  /** The owner of each rule; `undefined` for shared rules. @default {all are shared} */
  readonly owners?: readonly (Owner | undefined)[];
}

/** A difference; `key` = the owner of the rule. */
type ChainDifference<Owner> = Omit<DataPlaneDifference, "key"> & { readonly key?: Owner };

/** `found`: its rules as the tool printed them; `undefined` = there is no such chain. */
export function compareChain<Owner = never>(
  { table, name, rules, owners = [] }: WantedChain<Owner>,
  found: readonly string[] | undefined,
): readonly ChainDifference<Owner>[] {
  const chain = `${table} ${name}`;
  if (found === undefined) {
    const owner = owners.every((each) => each === owners[0]) ? owners[0] : undefined;
    return [{
      object: "chain",
      name: chain,
      kind: "missing",
      ...(owner !== undefined && { key: owner }),
      wanted: rules.join("\n") || "no rules",
    }];
  }
  const isSame = rules.length === found.length &&
    rules.every((rule, index) => isSameRule(rule, found[index]!));
  if (isSame) return [];
  const differences = compareLists(rules.map(normalRule), found.map(normalRule));
  return differences.map(({ kind, ...place }): ChainDifference<Owner> => {
    const owner = place.wanted === undefined ? undefined : owners[place.wanted];
    return {
      object: "rule",
      name: `${chain}, rule ${(place.wanted ?? place.found ?? 0) + 1}`,
      kind,
      ...(owner !== undefined && { key: owner }),
      ...(place.wanted !== undefined && { wanted: rules[place.wanted]! }),
      ...(place.found !== undefined && { found: found[place.found]! }),
    };
  });
}
