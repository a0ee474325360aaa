import type { Change } from "../../lib/engine/reconciler.ts";
import { compareLists } from "../../lib/proxy/compare_lists.ts";
import type { DataPlaneDifference } from "../../lib/proxy/data_plane_difference.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import { compareChain, isSameRule, normalRule } from "../netfilter/iptables/rule_normal_form.ts";
import { targetOf } from "../netfilter/iptables/iptables_save.ts";
import { KUBELET_FIREWALL } from "./base_chains.ts";
import { ruleLines } from "../netfilter/iptables/iptables_objects.ts";
import { chainKey, type IptablesLayout } from "./layout.ts";
import { JUMP, JUMPS } from "./jumps.ts";

type RuleChange = Change<ServicePortKey>;

/** The differences rule by rule, in words. */
export function ruleDifferences(
  changes: readonly RuleChange[],
  layout: IptablesLayout,
): readonly DataPlaneDifference[] {
  const refs = new Map(
    changes.length === 0 ? [] : [...layout.chains()].map((ref) => [chainKey(ref), ref]),
  );
  const stale = changes.filter(({ kind, after }) => kind === JUMP && after === undefined)
    .flatMap(({ name, before }) =>
      ruleLines(before).map((rule) => ({ chain: chainOf(name), rule }))
    );
  const differences = changes.flatMap((change): readonly DataPlaneDifference[] => {
    const { kind, name, before, after } = change;
    if (kind === JUMPS) return jumpDifferences(change, stale);
    if (kind === JUMP) {
      if (after === undefined) return [];
      return [{ object: JUMP, name: chainOf(name), kind: "missing", wanted: after }];
    }
    const chain = `${kind} ${name}`;
    if (after === undefined) {
      return [{ object: "chain", name: chain, kind: "extra", found: before || "no rules" }];
    }
    const ref = refs.get(chain);
    const content = ref && layout.content(ref);
    if (name === KUBELET_FIREWALL && ruleLines(before).length > 0) {
      return missingRules(ruleLines(after), ruleLines(before))
        .map((wanted) => ({ object: "rule", name: chain, kind: "missing", wanted }));
    }
    const wanted = { table: kind, name, rules: ruleLines(after), owners: content?.owners ?? [] };
    return compareChain(wanted, before === undefined ? undefined : ruleLines(before));
  });
  for (const { chain, rule } of stale) {
    differences.push({ object: JUMP, name: chain, kind: "extra", found: rule });
  }
  return differences;
}

/** Returns the rules of a chain of the kubelet's that are not there. Its other rules stay. */
export function missingRules(
  wanted: readonly string[],
  found: readonly string[],
): readonly string[] {
  return wanted.filter((rule) => !found.some((printed) => isSameRule(rule, printed)));
}

/** A leftover with the same target but other conditions counts as a jump that was altered. */
function jumpDifferences(
  { name, before, after }: RuleChange,
  stale: { readonly chain: string; readonly rule: string }[],
): readonly DataPlaneDifference[] {
  const [inPlace, found] = [ruleLines(after), ruleLines(before)];
  return compareLists(inPlace.map(normalRule), found.map(normalRule)).map(({ kind, ...place }) => {
    const wanted = place.wanted === undefined ? undefined : inPlace[place.wanted];
    const at = stale.findIndex(({ chain, rule }) =>
      kind === "missing" && chain === name && targetOf(rule) === targetOf(wanted ?? "")
    );
    const [altered] = at < 0 ? [] : stale.splice(at, 1);
    const there = place.found === undefined ? altered?.rule : found[place.found];
    return {
      object: JUMP,
      name,
      kind: altered === undefined ? kind : "altered",
      ...(wanted !== undefined && { wanted }),
      ...(there !== undefined && { found: there }),
    };
  });
}

/** Without the rule. */
function chainOf(name: string): string {
  return name.split(" ", 2).join(" ");
}
