/**
 * A plan of NetworkPolicy as objects of a tool, and what the layouts of all tools share. Pure.
 *
 * @module
 */
import type { KernelObject } from "../../lib/engine/reconciler.ts";
import type { IpAddress } from "../../lib/net/ip_address.ts";
import type {
  Direction,
  PeerSet,
  PeerSetId,
  PodKey,
  PodPlan,
  PodPort,
  PolicyKey,
  PolicyPlan,
  PolicyRule,
  RuleListId,
} from "../../lib/policy/policy_plan.ts";

/** A rule or set, as it is refused. */
export type Part = string;

/** A list as it is written, and the policies that are left out of it, each with its refused part. */
export interface ListObjects {
  readonly objects: readonly KernelObject[];
  readonly leftOut: ReadonlyMap<PolicyKey, Part>;
}

/** The parts of a plan on which the spelling of its pods, lists and base chains depends. */
export type LayoutSettings = Pick<
  PolicyPlan,
  "closedRanges" | "deny" | "family" | "sharedLinks"
>;

/** How one tool spells a plan. */
export interface PolicyLayout {
  /** What belongs to no pod and no list. */
  base(settings: LayoutSettings): readonly KernelObject[];
  list(id: RuleListId, plan: PolicyPlan, refused: ReadonlySet<Part>): ListObjects;
  pod(pod: PodPlan, settings: LayoutSettings): Iterable<KernelObject>;
  /** The set itself. Its name is the part that is refused, and the kind of its elements. */
  peers(id: PeerSetId, set: PeerSet, settings: LayoutSettings): KernelObject;
  /** The elements of a set, with their texts. */
  members(set: PeerSet): Iterable<readonly [key: string, text: string]>;
  memberKey(member: IpAddress | PodPort): string;
}

/** In the order in which a packet meets them. */
export const DIRECTIONS = ["egress", "ingress"] as const;

const NOTHING: ReadonlySet<Part> = new Set();

/** All objects of a plan. The same plan gives the same ones in the same order. */
export function* policyObjects(layout: PolicyLayout, plan: PolicyPlan): Generator<KernelObject> {
  const byKey = <T>([left]: readonly [string, T], [right]: readonly [string, T]) =>
    left < right ? -1 : 1;
  yield* layout.base(plan);
  for (const [id, set] of [...plan.peers].sort(byKey)) {
    const object = layout.peers(id, set, plan);
    yield object;
    for (const [name, text] of [...layout.members(set)].sort(byKey)) {
      yield { kind: object.name, name, text };
    }
  }
  for (const id of [...plan.lists.keys()].sort()) yield* layout.list(id, plan, NOTHING).objects;
  for (const [, pod] of [...plan.pods].sort(byKey)) yield* layout.pod(pod, plan);
}

/** The rules of a list without those of policies with a refused part. */
export function acceptableRules(
  rules: readonly PolicyRule[],
  refused: ReadonlySet<Part>,
  partsOf: (rule: PolicyRule) => Iterable<Part>,
): Pick<ListObjects, "leftOut"> & { readonly rules: readonly PolicyRule[] } {
  const leftOut = new Map<PolicyKey, Part>();
  for (const rule of refused.size > 0 ? rules : []) {
    for (const part of partsOf(rule)) if (refused.has(part)) leftOut.set(rule.policy, part);
  }
  if (leftOut.size === 0) return { rules, leftOut };
  return { rules: rules.filter(({ policy }) => !leftOut.has(policy)), leftOut };
}

/** The beginning of what is logged of a denied packet, at most 127 bytes; `to` or `from` the pod. */
export function denyLogPrefix(pod: PodKey, direction: Direction): string {
  const name = `${direction === "ingress" ? "to" : "from"} ${pod}`;
  // Names of pods are checked by the API server, and manifests are not: nothing but these characters
  // gets between the quotes.
  const safe = name.replaceAll(/[^\w./ -]/g, "?");
  return `netpol ${
    safe.length > MAX_LOGGED_NAME ? `${safe.slice(0, MAX_LOGGED_NAME - 1)}~` : safe
  }: `;
}

/** With the words around it, within the 127 bytes of the kernel. */
const MAX_LOGGED_NAME = 110;
