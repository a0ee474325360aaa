/** Describes what a plan of NetworkPolicies changes, for the change log. Pure. */
import type {
  PodKey,
  PodPlan,
  PolicyPlan,
  PolicyPlanChanges,
  RuleListId,
} from "../../policy/policy_plan.ts";
import type { NamedItem } from "../change_listener.ts";

/**
 * Yields the changes of a plan: pods by name, sets of peers as a count. `planned`: the pods of the
 * previous plan.
 */
export function* effectsOf(
  plan: PolicyPlan,
  { pods, peers, members }: PolicyPlanChanges,
  planned: ReadonlySet<PodKey>,
): Generator<readonly [NamedItem | undefined, NamedItem | undefined], void, void> {
  for (const key of pods) {
    const pod = plan.pods.get(key);
    const name = `pod ${key}`;
    const before = planned.has(key) ? { name, words: [] } : undefined;
    yield [before, pod && { name, words: podWords(plan, pod) }];
  }
  if (peers.size + members.size === 0) return;
  const changes = [...members.values()];
  const added = changes.reduce((sum, { added }) => sum + added.length, 0);
  const removed = changes.reduce((sum, { removed }) => sum + removed.length, 0);
  const name = peers.size + members.size === 1
    ? "1 set of peers"
    : `${peers.size + members.size} sets of peers`;
  const newSets = [...peers].filter((id) => plan.peers.has(id)).length;
  const words = [
    ...(newSets > 0 ? [`${newSets} new`] : []),
    ...(newSets < peers.size ? [`${peers.size - newSets} gone`] : []),
    ...(added > 0 ? [`${added} ${added === 1 ? "member" : "members"} new`] : []),
    ...(removed > 0 ? [`${removed} ${removed === 1 ? "member" : "members"} gone`] : []),
  ];
  yield [{ name, words: [] }, { name, words }];
}

function podWords({ lists }: PolicyPlan, { ingress, egress }: PodPlan): readonly string[] {
  const textOf = (id: RuleListId | undefined) => {
    const policies = (id && lists.get(id)?.policies) ?? [];
    return policies.length === 1 ? "1 policy" : `${policies.length} policies`;
  };
  const words = [
    ...(ingress ? [`ingress isolated by ${textOf(ingress)}`] : []),
    ...(egress ? [`egress isolated by ${textOf(egress)}`] : []),
  ];
  return words.length > 0 ? words : ["not isolated"];
}
