/**
 * NetworkPolicy for the engine, whichever tool writes it. Groups are sets of peers, lists, pods, and
 * what belongs to none of these.
 *
 * @module
 */
import type { Quarantined } from "../../lib/controller/data_plane.ts";
import type {
  Batch,
  Change,
  KernelObject,
  ObjectChange,
  Objects,
  Target,
} from "../../lib/engine/reconciler.ts";
import type {
  PeerSetId,
  PodKey,
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
  | `peers ${PeerSetId}`
  | `list ${RuleListId}`
  | `pod ${PodKey}`;

/** A rule or set, as it is refused. */
export type Part = string;

const NO_POLICIES: LeftOut = new Map();

/** The policies of one family. */
export abstract class PolicyTarget<Item> implements Target<PolicyGroup, Item, Part> {
  readonly root?: KernelObject;
  protected readonly quarantine: PolicyQuarantine;
  protected refused: RefusedParts = new Set();
  #plan: PolicyPlan | undefined;
  #changes: PolicyPlanChanges | undefined;
  /** Lists without some policies, and sets that are refused. */
  readonly #leftOut = new Map<PolicyGroup, LeftOut>();

  constructor(quarantine: PolicyQuarantine) {
    this.quarantine = quarantine;
  }

  abstract objectsOf(item: Item): Iterable<KernelObject>;
  abstract read(): Promise<Objects | undefined>;
  abstract begin(found?: Objects): Batch<Part>;
  /** Returns what was done since the last call, by name. */
  abstract takeCounts(): Readonly<Record<string, number>>;
  /** The differences in words. */
  abstract differences(changes: readonly Change<Part>[]): readonly PolicyDifference[];
  protected abstract arrangeBase(): Item | undefined;
  protected abstract arrangePeers(id: PeerSetId, applied: Item | undefined): Item | undefined;
  protected abstract arrangeList(id: RuleListId): { readonly leftOut: LeftOut } & Item;
  protected abstract arrangePod(key: PodKey): Item | undefined;
  /** The name of a set, as a part. */
  protected abstract peersName(id: PeerSetId): Part;
  abstract changesOf(
    key: PolicyGroup,
    applied: Item | undefined,
    item: Item | undefined,
  ): Iterable<ObjectChange> | undefined;

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
    this.quarantine.settle(this.refused);
  }

  leaveOut(reasons: ReadonlyMap<Part, string>): boolean {
    for (const [part, reason] of reasons) this.quarantine.refuse(part, reason);
    return reasons.size > 0;
  }

  arrange(key: PolicyGroup, applied: Item | undefined): Item | undefined {
    const space = key.indexOf(" ");
    const id = key.slice(space + 1);
    const { peers, lists } = this.plan;
    this.#leftOut.delete(key);
    switch (key.slice(0, Math.max(space, 0))) {
      case "peers":
        if (!peers.has(id as PeerSetId)) return undefined;
        if (!this.refused.has(this.peersName(id as PeerSetId))) {
          return this.arrangePeers(id as PeerSetId, applied);
        }
        this.#leftOut.set(key, NO_POLICIES);
        return undefined;
      case "list": {
        if (!lists.has(id as RuleListId)) return undefined;
        const list = this.arrangeList(id as RuleListId);
        if (list.leftOut.size > 0) this.#leftOut.set(key, list.leftOut);
        return list;
      }
      case "pod":
        return this.arrangePod(id as PodKey);
      default:
        return this.arrangeBase();
    }
  }

  protected get plan(): PolicyPlan {
    if (this.#plan === undefined) throw new Error("Cannot arrange policies before a first plan");
    return this.#plan;
  }

  protected get changes(): PolicyPlanChanges | undefined {
    return this.#changes;
  }
}
