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
import type { PolicyQuarantine } from "../policy_quarantine.ts";
import { BASE_JUMPS, type PolicyChain } from "./base_chains.ts";
import { peersName, policyChains, type PolicySet, policySets, ruleTexts } from "./layout.ts";
import type { FoundPolicies } from "./policy_writer.ts";

type Quarantine = Pick<PolicyQuarantine, "acceptable" | "isWaiting">;

/** Compares all chains, jumps and sets. What is in quarantine is not wanted. */
export function policyDifferences(
  plan: PolicyPlan,
  found: FoundPolicies,
  quarantine: Quarantine,
): readonly PolicyDifference[] {
  const chains = [
    ...policyChains(plan, (id) => {
      const list = plan.lists.get(id)!;
      return quarantine.acceptable(list, (rule) => [
        ...ruleTexts(rule, { direction: list.direction, plan }),
        ...(rule.peers ?? []).map((peer) => peersName(peer, plan.family)),
      ]).rules;
    }),
  ];
  const sets = [...policySets(plan)].filter(({ name }) => !quarantine.isWaiting(name));
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
    const rules = builtIn.get(from) ?? [];
    const at = rules.findIndex((each) => isSameRule(rule, each));
    if (at === 0) return [];
    const kind = at < 0 ? "missing" : "reordered";
    return [{ object: "rule", name: `filter ${from}, rule 1`, kind, wanted: rule }];
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
