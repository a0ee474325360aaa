/** Describes NetworkPolicies, and the causes of their syncs, for the change log. Pure. */
import type { KubeObject } from "../../api/kind.ts";
import { objectKey } from "../../api/kind.ts";
import type { Namespace } from "../../api/kinds/namespace.ts";
import type { NetworkPolicy } from "../../api/kinds/network_policy.ts";
import type { Node } from "../../api/kinds/node.ts";
import type { Pod } from "../../api/kinds/pod.ts";
import type {
  PodKey,
  PodPlan,
  PolicyPlan,
  PolicyPlanChanges,
  RuleListId,
} from "../../policy/policy_plan.ts";
import { deepEqual } from "../../proxy/deep_equal.ts";
import type { ChangeRecorder } from "./change_recorder.ts";
import { changeOf, itemChanges, limited } from "./change_text.ts";
import type { CauseWords, EffectWords } from "./pending_changes.ts";

/** An object before and after; one of them may be absent. */
interface Change<Kind, State> {
  readonly kind: Kind;
  readonly previous: State | undefined;
  readonly current: State | undefined;
}

/** The possible causes of a sync. */
export type PolicyChange =
  | Change<"Pod", Pod>
  | Change<"Namespace", Namespace>
  | Change<"NetworkPolicy", NetworkPolicy>
  | Change<"Node", Node>
  | Change<"configuration", undefined>;

/** An item that a sync changed: a pod of this node, or its sets of peers. */
interface PolicyEffect {
  readonly name: string;
  readonly words: readonly string[];
}

/** Writes down the changes of one family. */
export type PolicyChangeRecorder = ChangeRecorder<PolicyChange, PolicyEffect>;

/** Any object may affect any pod, so causes are recorded for every change. */
const ANYTHING = "anything";

/** The words. */
export const POLICY_WORDS = {
  causeWords: {
    subjectOf({ current, previous }) {
      const object: KubeObject | undefined = current ?? previous;
      return { name: object ? objectKey(object) : "", owner: ANYTHING };
    },
    wordsOf: (change) => limited(wordsOf(change)),
  } satisfies CauseWords<PolicyChange>,
  effectWords: {
    keyOf: ({ name }) => name,
    ownerOf: () => ANYTHING,
    wordsOf: (_, next) => next?.words ?? [],
  } satisfies EffectWords<PolicyEffect>,
};

function wordsOf(change: PolicyChange): readonly string[] {
  switch (change.kind) {
    case "Pod":
      return [
        ...labelWords(change.previous, change.current),
        ...itemChanges("address", [addressesOf(change.previous), addressesOf(change.current)]),
      ];
    case "Namespace":
      return labelWords(change.previous, change.current);
    case "NetworkPolicy":
      return policyChangeWords(change);
    default:
      return [];
  }
}

/** E.g. `rules 1 -> 2` and `egress changed`. */
function policyChangeWords(
  { previous, current }: Change<"NetworkPolicy", NetworkPolicy>,
): readonly string[] {
  const countOf = (policy: NetworkPolicy | undefined) =>
    policy && (policy.spec.ingress?.length ?? 0) + (policy.spec.egress?.length ?? 0);
  const fields = ["podSelector", "policyTypes", "ingress", "egress"] as const;
  const changed = previous && current
    ? fields.filter((field) => !deepEqual(previous.spec[field], current.spec[field]))
    : [];
  return [
    ...changeOf("rules", [countOf(previous), countOf(current)]),
    ...changed.map((field) => `${field} changed`),
  ];
}

function labelWords(
  previous: KubeObject | undefined,
  current: KubeObject | undefined,
): readonly string[] {
  const [before, after] = [previous, current].map((object) => object?.metadata.labels ?? {});
  if (!current) return [];
  const set = Object.entries(after!).filter(([name, value]) => before![name] !== value);
  const unset = Object.keys(before!).filter((name) => !Object.hasOwn(after!, name));
  return [
    ...set.map(([name, value]) => `labelled ${name}=${value}`),
    ...unset.map((name) => `label ${name} removed`),
  ];
}

function addressesOf(pod: Pod | undefined): readonly string[] {
  return pod?.status.podIPs?.map(({ ip }) => ip) ?? [];
}

/**
 * Yields the changes of a plan: pods by name, sets of peers as a count. `planned`: the pods of the
 * previous plan.
 */
export function* effectsOf(
  plan: PolicyPlan,
  { pods, peers, members }: PolicyPlanChanges,
  planned: ReadonlySet<PodKey>,
): Generator<readonly [PolicyEffect | undefined, PolicyEffect | undefined], void, void> {
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
