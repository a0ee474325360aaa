/**
 * NetworkPolicy for the engine, whichever tool writes it. Groups are sets of peers, lists, pods, and
 * what belongs to none or all of these.
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
  Target,
} from "../../lib/engine/reconciler.ts";
import type { IpAddress } from "../../lib/net/ip_address.ts";
import type {
  PeerSet,
  PeerSetId,
  PodKey,
  PodPlan,
  PodPort,
  PolicyKey,
  PolicyPlan,
  PolicyPlanChanges,
  RuleListId,
} from "../../lib/policy/policy_plan.ts";
import type { PolicyDifference } from "./policy_data_plane.ts";
import type { LeftOut, PolicyQuarantine, RefusedParts } from "./policy_quarantine.ts";

/** A group of objects. */
export type PolicyGroup =
  | "base"
  | "pods"
  | `peers ${PeerSetId}`
  | `list ${RuleListId}`
  | `pod ${PodKey}`;

/** A rule or set, as it is refused. */
export type Part = string;

/** A set of peers. Its members change in place. */
interface PeersItem {
  readonly id: PeerSetId;
  readonly set: PeerSet;
}

/** Objects that are neither of one pod nor a set of peers. */
export interface ObjectsItem {
  readonly objects: readonly KernelObject[];
}

/** A list as it is written. */
export interface ListItem extends ObjectsItem {
  readonly leftOut: LeftOut;
}

/** A group as it is wanted. */
export type PolicyItem = ObjectsItem | PeersItem | PodPlan;

const NO_POLICIES: LeftOut = new Map();

/** The policies of one family. */
export abstract class PolicyTarget implements Target<PolicyGroup, PolicyItem, Part> {
  readonly root?: KernelObject;
  /** Readings of everything. */
  reads = 0;
  protected readonly quarantine: PolicyQuarantine;
  protected refused: RefusedParts = new Set();
  #plan: PolicyPlan | undefined;
  #changes: PolicyPlanChanges | undefined;
  /** Lists without some policies, and sets that are refused. */
  readonly #leftOut = new Map<PolicyGroup, LeftOut>();

  constructor(quarantine: PolicyQuarantine) {
    this.quarantine = quarantine;
  }

  abstract read(): Promise<Objects | undefined>;
  abstract begin(found?: Objects): Batch<Part>;
  /** Returns what was done since the last call, by name. */
  abstract takeCounts(): Readonly<Record<string, number>>;
  /** The differences in words. */
  abstract differences(changes: readonly Change<Part>[]): readonly PolicyDifference[];
  /** What belongs to no pod and no list. */
  protected abstract base(): ObjectsItem;
  protected abstract list(id: RuleListId): ListItem;
  /** What depends on all pods. @default {nothing} */
  protected pods?(): ObjectsItem;
  protected abstract podObjects(pod: PodPlan): Iterable<KernelObject>;
  /** The set itself. Its name is the part that is refused, and the kind of its elements. */
  protected abstract peers(id: PeerSetId, set: PeerSet): KernelObject;
  /** The elements, with their texts. */
  protected abstract members(set: PeerSet): Iterable<readonly [key: string, text: string]>;
  protected abstract memberKey(member: IpAddress | PodPort): string;

  /** `changes`: from what was applied; `undefined` = unknown. `refused`: what is left out. */
  want(plan: PolicyPlan, changes: PolicyPlanChanges | undefined, refused: RefusedParts): void {
    this.#plan = plan;
    this.#changes = changes;
    this.refused = refused;
  }

  /** The policies that are left out of some list. */
  get quarantined(): readonly Quarantined<PolicyKey>[] {
    return this.quarantine.report(this.#leftOut.values());
  }

  *keys(): Generator<PolicyGroup> {
    const { peers, lists, pods } = this.plan;
    this.#leftOut.clear();
    yield "base";
    yield "pods";
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
    if (pods.size > 0) found.add("pods");
    for (const key of pods) found.add(`pod ${key}`);
    return found;
  }

  settle(): void {
    this.quarantine.settle(this.refused);
  }

  leaveOut(reasons: ReadonlyMap<Part, string>): boolean {
    for (const [part, reason] of reasons) this.quarantine.refuse(part, reason);
    return reasons.size > 0;
  }

  arrange(key: PolicyGroup, applied: PolicyItem | undefined): PolicyItem | undefined {
    const space = key.indexOf(" ");
    const id = key.slice(space + 1);
    const { peers, lists, pods } = this.plan;
    this.#leftOut.delete(key);
    switch (key.slice(0, Math.max(space, 0))) {
      case "peers": {
        const set = peers.get(id as PeerSetId);
        if (set === undefined) return undefined;
        if (this.refused.has(this.peers(id as PeerSetId, set).name)) {
          this.#leftOut.set(key, NO_POLICIES);
          return undefined;
        }
        return applied && this.#isKept(applied, id as PeerSetId) &&
            this.#changes?.members.has(id as PeerSetId) !== true
          ? applied
          : { id: id as PeerSetId, set };
      }
      case "list": {
        if (!lists.has(id as RuleListId)) return undefined;
        const list = this.list(id as RuleListId);
        if (list.leftOut.size > 0) this.#leftOut.set(key, list.leftOut);
        return list;
      }
      case "pod":
        return pods.get(id as PodKey);
      default:
        return key === "base" ? this.base() : this.pods?.();
    }
  }

  objectsOf(item: PolicyItem): Iterable<KernelObject> {
    if ("objects" in item) return item.objects;
    return "set" in item ? this.#peersObjects(item) : this.podObjects(item);
  }

  changesOf(
    applied: PolicyItem | undefined,
    item: PolicyItem | undefined,
  ): Iterable<ObjectChange> | undefined {
    const either = item ?? applied;
    return either && "set" in either ? this.#peersChanges(either, applied, item) : undefined;
  }

  *#peersObjects({ id, set }: PeersItem): Generator<KernelObject> {
    const object = this.peers(id, set);
    yield object;
    for (const [name, text] of this.members(set)) yield { kind: object.name, name, text };
  }

  *#peersChanges(
    { id, set }: PeersItem,
    applied: PolicyItem | undefined,
    item: PolicyItem | undefined,
  ): Generator<ObjectChange> {
    const { kind, name, text } = this.peers(id, set);
    if (item === undefined) {
      yield { kind, name, before: text, after: undefined };
    } else if (applied === undefined || !this.#isKept(applied, id)) {
      yield { kind, name, before: applied && text, after: text };
      for (const [key, after] of this.members(set)) {
        yield { kind: name, name: key, before: undefined, after };
      }
    } else {
      const { added = [], removed = [] } = this.#changes?.members.get(id) ?? {};
      for (const member of removed) {
        yield { kind: name, name: this.memberKey(member), before: "", after: undefined };
      }
      for (const member of added) {
        yield { kind: name, name: this.memberKey(member), before: undefined, after: "" };
      }
    }
  }

  /** Whether a set is still the same one, though it may have other members. */
  #isKept(applied: PolicyItem, id: PeerSetId): boolean {
    return "set" in applied && applied.set === this.plan.peers.get(id) &&
      this.#changes?.peers.has(id) !== true;
  }

  protected get plan(): PolicyPlan {
    if (this.#plan === undefined) throw new Error("Cannot arrange policies before a first plan");
    return this.#plan;
  }
}
