/**
 * The peer sets that lists name, kept up to date with pods and namespaces.
 *
 * @module
 */
import { type IpAddress, type IpFamily, ipFamilyOf } from "../net/ip_address.ts";
import { matchesLabels, SelectorIndex } from "./label_selector.ts";
import {
  itemsMatching,
  membersOf,
  type NamespaceLabels,
  type NodesSource,
  type PeerSource,
  placeOfQuery,
  type PodSource,
} from "./peer_source.ts";
import {
  memberKey,
  type PeerMember,
  type PeerSet,
  type PeerSetChange,
  type PeerSetId,
  type PodKey,
  type PolicyPlanChanges,
  type RuleListId,
} from "./policy_plan.ts";
import type { PolicyPod } from "./policy_pod.ts";
import type { PolicyState } from "./policy_state.ts";

/** A set of pods. No two pods give it the same member, because one stands for each address. */
interface LiveSet {
  readonly source: PodSource;
  readonly members: Map<string, PeerMember>;
}

/** The first state of each pod and namespace that changed; a pod that is new had none. */
export interface PeerEvents {
  readonly pods: ReadonlyMap<PodKey, PolicyPod | undefined>;
  readonly namespaces: ReadonlyMap<string, NamespaceLabels>;
  /** The addresses that changed nodes had or have. */
  readonly nodeAddresses: ReadonlySet<IpAddress>;
}

/** The sets of one plan. Each is counted by the lists that name it. */
export class LivePeerSets {
  readonly #state: PolicyState;
  readonly #family: IpFamily;
  readonly #pending: PendingPolicyChanges;
  readonly #sets = new Map<PeerSetId, PeerSet>();
  readonly #uses = new Map<PeerSetId, number>();
  readonly #live = new Map<PeerSetId, LiveSet>();
  readonly #index = new SelectorIndex<LiveSet>();
  readonly #ofNodes = new Map<
    PeerSetId,
    { readonly source: NodesSource; readonly members: Map<string, IpAddress> }
  >();

  constructor(state: PolicyState, family: IpFamily, pending: PendingPolicyChanges) {
    this.#state = state;
    this.#family = family;
    this.#pending = pending;
  }

  /** The sets that some list names. */
  get sets(): ReadonlyMap<PeerSetId, PeerSet> {
    return this.#sets;
  }

  /** Counts a use of the set of a source. The first one fills it. */
  acquire(source: PeerSource): void {
    const { id } = source;
    const uses = this.#uses.get(id) ?? 0;
    this.#uses.set(id, uses + 1);
    if (uses > 0) return;
    this.#pending.markPeers(id);
    if (source.kind === "blocks") {
      this.#sets.set(id, { kind: "blocks", members: source.members });
      return;
    }
    if (source.kind === "nodes") {
      const members = new Map<string, IpAddress>();
      this.#sets.set(id, { kind: "pods", members });
      this.#ofNodes.set(id, { source, members });
      this.#followNodes(source, members, this.#state.nodeAddresses());
      return;
    }
    const live: LiveSet = { source, members: new Map() };
    this.#sets.set(id, { kind: source.kind, members: live.members });
    this.#live.set(id, live);
    for (const pod of this.#state.podsOf(source.query)) this.#addPod(live, pod);
    this.#index.add(live, placeOfQuery(source.query));
  }

  /** Takes back one {@linkcode acquire}. */
  release({ id }: PeerSource): void {
    const uses = this.#uses.get(id)! - 1;
    this.#uses.set(id, uses);
    if (uses > 0) return;
    this.#uses.delete(id);
    this.#sets.delete(id);
    this.#pending.markPeers(id);
    this.#ofNodes.delete(id);
    const live = this.#live.get(id);
    if (live === undefined) return;
    this.#live.delete(id);
    this.#index.delete(live, placeOfQuery(live.source.query));
  }

  /**
   * Follows pods and namespaces. For a pod, looks only at sets whose selectors may match it; for a
   * namespace, at every set that selects namespaces, and at the pods of this one; for a node, at every
   * set of nodes. The state must not change between the steps.
   */
  *updateInSteps(
    { pods, namespaces, nodeAddresses }: PeerEvents,
  ): Generator<void, void, void> {
    for (const { source, members } of this.#ofNodes.values()) {
      yield;
      this.#followNodes(source, members, nodeAddresses);
    }
    if (this.#live.size === 0) return;
    for (const pod of pods.values()) {
      yield;
      if (pod === undefined) continue;
      const namespace = namespaces.get(pod.namespace) ?? this.#state.namespaceLabels(pod.namespace);
      for (const live of this.#setsOf(pod, namespace)) this.#removePod(live, pod);
    }
    for (const [name, previous] of namespaces) {
      yield;
      this.#moveNamespace(name, previous);
    }
    for (const key of pods.keys()) {
      yield;
      const pod = this.#state.pods.get(key);
      if (pod === undefined) continue;
      const namespace = this.#state.namespaceLabels(pod.namespace);
      for (const live of this.#setsOf(pod, namespace)) this.#addPod(live, pod);
    }
  }

  /** Two nodes may have an address, as when one gets another name: either of them is enough. */
  #followNodes(
    { id, selector }: NodesSource,
    members: Map<string, IpAddress>,
    addresses: Iterable<IpAddress>,
  ): void {
    for (const address of addresses) {
      if (ipFamilyOf(address) !== this.#family) continue;
      const isMember = this.#state.isNode(address, selector);
      if (isMember === members.has(address)) continue;
      if (isMember) members.set(address, address);
      else members.delete(address);
      this.#pending.markMember(id, address, isMember);
    }
  }

  #moveNamespace(name: string, previous: NamespaceLabels): void {
    const current = this.#state.namespaceLabels(name);
    for (const live of this.#live.values()) {
      const { scope, pods } = live.source.query;
      if (scope.kind !== "namespaces") continue;
      const was = matchesLabels(scope.selector, previous.labels, previous);
      const is = matchesLabels(scope.selector, current.labels, current);
      if (was === is) continue;
      for (const pod of this.#state.podsIn(name)) {
        if (!matchesLabels(pods, pod.labels)) continue;
        if (is) this.#addPod(live, pod);
        else this.#removePod(live, pod);
      }
    }
  }

  #setsOf(pod: PolicyPod, namespace: NamespaceLabels): ReadonlySet<LiveSet> {
    return itemsMatching(this.#index, ({ source }) => source.query, pod, namespace);
  }

  #addPod({ source, members }: LiveSet, pod: PolicyPod): void {
    for (const member of membersOf(source, pod, this.#family)) {
      const key = memberKey(member);
      if (members.has(key)) continue;
      members.set(key, member);
      this.#pending.markMember(source.id, member, true);
    }
  }

  #removePod({ source, members }: LiveSet, pod: PolicyPod): void {
    for (const member of membersOf(source, pod, this.#family)) {
      if (!members.delete(memberKey(member))) continue;
      this.#pending.markMember(source.id, member, false);
    }
  }
}

/** Changes that no sync has applied yet. Everything may be different until the first one. */
export class PendingPolicyChanges {
  #full = true;
  #pods = new Set<PodKey>();
  #lists = new Set<RuleListId>();
  #peers = new Set<PeerSetId>();
  #members = new Map<PeerSetId, Map<string, { member: PeerMember; isAdded: boolean }>>();

  /** Marks every part of the plan as changed. */
  markAll(): void {
    this.#full = true;
  }

  /** A pod came, went, or has other addresses or lists. */
  markPod(key: PodKey): void {
    this.#pods.add(key);
  }

  /** A list came or went. */
  markList(id: RuleListId): void {
    this.#lists.add(id);
  }

  /** A set came or went. What it gained and lost before says nothing any more. */
  markPeers(id: PeerSetId): void {
    this.#peers.add(id);
    this.#members.delete(id);
  }

  /** A set gained or lost a member. */
  markMember(id: PeerSetId, member: PeerMember, isAdded: boolean): void {
    if (this.#peers.has(id)) return;
    let known = this.#members.get(id);
    if (known === undefined) this.#members.set(id, known = new Map());
    const key = memberKey(member);
    const other = known.get(key);
    if (other === undefined) known.set(key, { member, isAdded });
    else if (other.isAdded !== isAdded) known.delete(key);
    if (known.size === 0) this.#members.delete(id);
  }

  /** The changes so far; the next ones count from here. */
  take(): PolicyPlanChanges {
    const members = new Map<PeerSetId, PeerSetChange>();
    for (const [id, changes] of this.#members) {
      const list = [...changes.values()];
      members.set(id, {
        added: list.filter(({ isAdded }) => isAdded).map(({ member }) => member),
        removed: list.filter(({ isAdded }) => !isAdded).map(({ member }) => member),
      });
    }
    const [full, pods, lists, peers] = [this.#full, this.#pods, this.#lists, this.#peers];
    this.#full = false;
    this.#pods = new Set();
    this.#lists = new Set();
    this.#peers = new Set();
    this.#members = new Map();
    return { full, pods, lists, peers, members };
  }
}
