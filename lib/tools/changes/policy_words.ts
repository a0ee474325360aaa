/** The words of the change log about policies, and about whatever names itself. Pure. */
import { type KubeObject, objectKey } from "../../api/kind.ts";
import type { NetworkPolicy } from "../../api/kinds/network_policy.ts";
import type { Pod } from "../../api/kinds/pod.ts";
import type {
  NamedChange,
  NamedItem,
  ObjectChange,
  PolicyChange,
} from "../../app/change_listener.ts";
import { deepEqual } from "../../proxy/deep_equal.ts";
import { changeOf, itemChanges, limited } from "./change_text.ts";
import type { CauseWords, EffectWords } from "./change_recorder.ts";

/** Any object may affect any pod or address, so causes are recorded for every change. */
const ANYTHING = "anything";

/** Describes the causes of syncs of NetworkPolicies. */
export const POLICY_CAUSES: CauseWords<PolicyChange> = {
  subjectOf({ current, previous }) {
    const object: KubeObject | undefined = current ?? previous;
    return { name: object ? objectKey(object) : "", owner: ANYTHING };
  },
  wordsOf: (change) => limited(wordsOf(change)),
};

/** Describes causes that have a name and words already. */
export const NAMED_CAUSES: CauseWords<NamedChange> = {
  subjectOf: ({ name }) => ({ name, owner: ANYTHING }),
  wordsOf: ({ words }) => words,
};

/** Describes items that have a name and words already. */
export const NAMED_EFFECTS: EffectWords<NamedItem> = {
  keyOf: ({ name }) => name,
  ownerOf: () => ANYTHING,
  wordsOf: (previous, next) => (next ?? previous)?.words ?? [],
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
  { previous, current }: ObjectChange<"NetworkPolicy", NetworkPolicy>,
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
