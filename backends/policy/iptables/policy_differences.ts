/**
 * How what the kernel holds differs from a plan, object by object. Pure.
 *
 * @module
 */
import type { PolicyPlan } from "../../../lib/policy/policy_plan.ts";
import { normalOptions } from "../../netfilter/ipset/ipset_text.ts";
import { compareChain } from "../../netfilter/iptables/compare_chain.ts";
import { isSameRule, normalRule } from "../../netfilter/iptables/rule_normal_form.ts";
import type { PolicyDifference } from "../policy_data_plane.ts";
import type { RefusedParts } from "../policy_quarantine.ts";
import { BASE_JUMPS, type PolicyChain } from "./base_chains.ts";
import { policyChains, type PolicySet, policySets } from "./layout.ts";
import type { FoundPolicies } from "./policy_writer.ts";

/** Compares all chains, jumps and sets. What was refused is not wanted. */
export function policyDifferences(
  plan: PolicyPlan,
  found: FoundPolicies,
  refused: RefusedParts,
): readonly PolicyDifference[] {
  const chains = [...policyChains(plan, refused)];
  const sets = [...policySets(plan, refused)];
  const [chainNames, setNames] = [chains, sets].map((all) => new Set(all.map(({ name }) => name)));
  return [
    ...jumpDifferences(found),
    ...chains.flatMap((chain) => chainDifferences(chain, found.chains.get(chain.name))),
    ...[...found.chains.keys()].filter((name) => !chainNames!.has(name))
      .map((name) => extra("chain", `filter ${name}`)),
    ...sets.flatMap((set) => setDifferences(set, found)),
    ...[...found.sets.keys()].filter((name) => !setNames!.has(name))
      .map((name) => extra("ip set", name)),
  ];
}

function jumpDifferences({ builtIn }: FoundPolicies): readonly PolicyDifference[] {
  return BASE_JUMPS.flatMap(({ from, rule }): readonly PolicyDifference[] => {
    const rules = (builtIn.get(from) ?? []).map((found, index) => ({ found, index }));
    const [first, ...others] = rules.filter(({ found }) => isSameRule(rule, found));
    const object = "rule";
    const name = (index: number) => `filter ${from}, rule ${index + 1}`;
    const kind = first ? "reordered" : "missing";
    return [
      ...first?.index === 0 ? [] : [{ object, name: name(0), kind, wanted: rule } as const],
      ...others.map(({ found, index }) =>
        ({ object, name: name(index), kind: "extra", found }) as const
      ),
    ];
  });
}

function chainDifferences(
  { name, rules, isUnordered }: PolicyChain,
  found: readonly string[] | undefined,
): readonly PolicyDifference[] {
  const differences = compareChain(
    { table: "filter", name, rules: inOrder(rules, isUnordered) },
    found && inOrder(found, isUnordered),
  );
  return differences.map(({ key: _, ...difference }) => difference);
}

function inOrder(rules: readonly string[], isUnordered: true | undefined): readonly string[] {
  if (!isUnordered) return rules;
  const sorted = rules.slice(0, -1).map((rule) => [normalRule(rule), rule] as const).sort();
  return [...sorted.map(([, rule]) => rule), ...rules.slice(-1)];
}

function setDifferences(
  { name, options, entries }: PolicySet,
  { sets }: FoundPolicies,
): readonly PolicyDifference[] {
  const [found, wanted] = [sets.get(name), new Set(entries)];
  if (found === undefined) return [{ object: "ip set", name, kind: "missing", wanted: options }];
  const object = "ip set entry";
  const different = found.options === normalOptions(options)
    ? []
    : [{ object: "ip set", name, kind: "altered" as const, wanted: options, found: found.options }];
  return [
    ...different,
    ...wanted.difference(found.entries).values().map((entry) => ({
      object,
      name,
      kind: "missing" as const,
      wanted: entry,
    })),
    ...found.entries.values().filter((entry) => !wanted.has(entry)).map((entry) => ({
      object,
      name,
      kind: "extra" as const,
      found: entry,
    })),
  ];
}

function extra(object: string, name: string): PolicyDifference {
  return { object, name, kind: "extra", found: name };
}
