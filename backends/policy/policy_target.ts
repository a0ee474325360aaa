/**
 * NetworkPolicy for the engine, whichever tool writes it. Groups are sets of peers, lists, pods, and
 * what belongs to none of these.
 *
 * @module
 */
import type { Quarantined } from "../../lib/engine/data_plane.ts";
import type {
  Batch,
  Change,
  KernelObject,
  ObjectChange,
  Objects,
  Reading,
} from "../../lib/engine/reconciler.ts";
import type {
  Direction,
  PeerSet,
  PeerSetId,
  PodKey,
  PodPlan,
  PodPort,
  PolicyKey,
  PolicyPlan,
  PolicyPlanChanges,
  PolicyRule,
  RuleListId,
} from "../../lib/policy/policy_plan.ts";
import type { DataPlaneDifference } from "../../lib/proxy/data_plane.ts";
import { refusedItem, type RefusedItems } from "../netfilter/refused_items.ts";
import type { CountingTarget } from "../netfilter/rule_plane.ts";
import type { Clock } from "../../lib/os/clock.ts";
import type { IpAddress } from "../../lib/net/ip_address.ts";

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

/**
 * The rules of a list without those of policies with a refused part. Such a policy allows nothing: where
 * it denies something, or leaves it to the next tier, it denies everything instead.
 */
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
  const acceptable = rules.flatMap(({ peers, ports, ...rule }): readonly PolicyRule[] => {
    if (leftOut.has(rule.policy)) return rule.action ? [{ ...rule, action: "deny" }] : [];
    return [{ ...rule, ...(peers && { peers }), ...(ports && { ports }) }];
  });
  return { rules: acceptable, leftOut };
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

/** A group of objects. */
type PolicyGroup = "base" | `peers ${PeerSetId}` | `list ${RuleListId}` | `pod ${PodKey}`;

/** An object of the data plane that differs from the plan. */
export type PolicyDifference = Omit<DataPlaneDifference, "key">;

/** A set of peers. Its members change in place. */
interface PeersItem {
  readonly id: PeerSetId;
  readonly set: PeerSet;
}

/** A group as it is wanted: the base, a list, a set or a pod. */
type PolicyItem = Pick<ListObjects, "objects"> | PeersItem | PodPlan;

const NO_POLICIES: ListObjects["leftOut"] = new Map();

/** The policies of one family. */
export abstract class PolicyTarget implements CountingTarget<Part> {
  readonly root?: KernelObject;
  readonly #layout: PolicyLayout;
  protected readonly clock: Clock;
  readonly #refused: RefusedItems<{ readonly key: Part }>;
  /** The parts that are left out. */
  #leaves: ReadonlySet<Part> = new Set();
  #plan: PolicyPlan | undefined;
  #changes: PolicyPlanChanges | undefined;
  /** Lists without some policies, and sets that are refused. */
  readonly #leftOut = new Map<PolicyGroup, ListObjects["leftOut"]>();

  constructor(
    layout: PolicyLayout,
    clock: Clock,
    refused: RefusedItems<{ readonly key: Part }>,
  ) {
    this.#layout = layout;
    this.clock = clock;
    this.#refused = refused;
  }

  abstract read(): Promise<Objects | undefined>;
  abstract begin(reading: Reading | undefined): Batch<Part>;
  abstract readonly operations: Readonly<Record<string, number>>;
  abstract countAnew(): void;
  /** The differences in words. */
  abstract differences(changes: readonly Change<Part>[]): readonly PolicyDifference[];

  /** `changes`: from what was applied; `undefined` = unknown. */
  want(plan: PolicyPlan, changes?: PolicyPlanChanges): void {
    this.#plan = plan;
    this.#changes = changes;
    // What was left out is no drift. A sync tries it again once it is due, but not after a failure:
    // the parts of a sync that found only some of them would come due before the others are known.
    const now = changes?.full === false ? this.clock.now() : -Infinity;
    this.#leaves = new Set(
      this.#refused.refusals.entries().filter(([, { retryAt }]) => now < retryAt)
        .map(([part]) => part),
    );
  }

  /** The policies that are left out of some list. */
  get quarantined(): readonly Quarantined<PolicyKey>[] {
    const found = new Map<PolicyKey, Quarantined<PolicyKey>>();
    for (const [policy, part] of [...this.#leftOut.values()].flatMap((leftOut) => [...leftOut])) {
      const refusal = this.#refused.refusals.get(part);
      if (refusal) found.set(policy, refusedItem(this.clock, policy, refusal));
    }
    return [...found.values()].sort((left, right) => left.key < right.key ? -1 : 1);
  }

  *keys(): Generator<PolicyGroup> {
    const { peers, lists, pods } = this.plan;
    this.#leftOut.clear();
    yield "base";
    for (const id of [...peers.keys()].sort()) yield `peers ${id}`;
    for (const id of [...lists.keys()].sort()) yield `list ${id}`;
    for (const key of [...pods.keys()].sort()) yield `pod ${key}`;
  }

  /** What was left out may be tried again. */
  dirty(): Iterable<PolicyGroup> {
    const { peers, members, lists, pods } = this.#changes!;
    const found = new Set<PolicyGroup>();
    for (const id of peers) found.add(`peers ${id}`);
    for (const id of members.keys()) found.add(`peers ${id}`);
    for (const id of lists) found.add(`list ${id}`);
    for (const key of this.#leftOut.keys()) found.add(key);
    for (const key of pods) found.add(`pod ${key}`);
    return found;
  }

  settle(): void {
    this.#refused.settle((part) => !this.#leaves.has(part));
  }

  leaveOut(reasons: ReadonlyMap<Part, string>): boolean {
    const now = this.clock.now();
    for (const [key, reason] of reasons) this.#refused.refuse({ key }, reason, now);
    this.#leaves = this.#leaves.union(new Set(reasons.keys()));
    return reasons.size > 0;
  }

  arrange(key: PolicyGroup, applied: PolicyItem | undefined): PolicyItem | undefined {
    const { plan } = this;
    if (key === "base") return { objects: this.#layout.base(plan) };
    this.#leftOut.delete(key);
    const space = key.indexOf(" ");
    const id = key.slice(space + 1);
    switch (key.slice(0, space)) {
      case "peers": {
        const set = plan.peers.get(id as PeerSetId);
        if (set === undefined) return undefined;
        if (this.#leaves.has(this.#layout.peers(id as PeerSetId, set, plan).name)) {
          this.#leftOut.set(key, NO_POLICIES);
          return undefined;
        }
        return applied && this.#isKept(applied, id as PeerSetId) &&
            this.#changes?.members.has(id as PeerSetId) !== true
          ? applied
          : { id: id as PeerSetId, set };
      }
      case "list": {
        if (!plan.lists.has(id as RuleListId)) return undefined;
        const list = this.#layout.list(id as RuleListId, plan, this.#leaves);
        if (list.leftOut.size > 0) this.#leftOut.set(key, list.leftOut);
        return list;
      }
      default:
        return plan.pods.get(id as PodKey);
    }
  }

  objectsOf(item: PolicyItem): Iterable<KernelObject> {
    if ("objects" in item) return item.objects;
    return "set" in item ? this.#peersObjects(item) : this.#layout.pod(item, this.plan);
  }

  changesOf(
    applied: PolicyItem | undefined,
    item: PolicyItem | undefined,
  ): Iterable<ObjectChange> | undefined {
    const either = item ?? applied;
    return either && "set" in either ? this.#peersChanges(either, applied, item) : undefined;
  }

  *#peersObjects({ id, set }: PeersItem): Generator<KernelObject> {
    const object = this.#layout.peers(id, set, this.plan);
    yield object;
    for (const [name, text] of this.#layout.members(set)) yield { kind: object.name, name, text };
  }

  *#peersChanges(
    { id, set }: PeersItem,
    applied: PolicyItem | undefined,
    item: PolicyItem | undefined,
  ): Generator<ObjectChange> {
    const layout = this.#layout;
    const { kind, name, text } = layout.peers(id, set, this.plan);
    if (item === undefined) {
      yield { kind, name, before: text, after: undefined };
    } else if (applied === undefined || !this.#isKept(applied, id)) {
      yield { kind, name, before: applied && text, after: text };
      for (const [key, after] of layout.members(set)) {
        yield { kind: name, name: key, before: undefined, after };
      }
    } else {
      const { added = [], removed = [] } = this.#changes?.members.get(id) ?? {};
      for (const member of removed) {
        yield { kind: name, name: layout.memberKey(member), before: "", after: undefined };
      }
      for (const member of added) {
        yield { kind: name, name: layout.memberKey(member), before: undefined, after: "" };
      }
    }
  }

  /** Whether a set is still the same one, though it may have other members. */
  #isKept(applied: PolicyItem, id: PeerSetId): boolean {
    return "set" in applied && applied.set === this.plan.peers.get(id);
  }

  protected get plan(): PolicyPlan {
    if (this.#plan === undefined) throw new Error("Cannot arrange policies before a first plan");
    return this.#plan;
  }
}
