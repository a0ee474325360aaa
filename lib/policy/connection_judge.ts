/**
 * Judges connections at any time by the last plan, of which it keeps a copy: the maps of a plan are in
 * between two states while the next one is made.
 *
 * @module
 */
import type { Cidr } from "../net/cidr.ts";
import { CidrCover } from "../net/cidr_cover.ts";
import type { IpAddress } from "../net/ip_address.ts";
import { OneAtATime } from "../net/one_at_a_time.ts";
import {
  type Connection,
  judgeConnection,
  type Judgement,
  type PolicyView,
  type ViewedParts,
  viewParts,
} from "./judge_connection.ts";
import {
  memberKey,
  type PeerSet,
  type PeerSetChange,
  type PeerSetId,
  type PodKey,
  type PodPlan,
  type PodPort,
  type PolicyPlan,
  type PolicyPlanChanges,
  type RuleList,
  type RuleListId,
} from "./policy_plan.ts";

/** Relays connections of clients, and asks the judge before each of them. */
export interface PolicedRelay {
  /** Whether clients reach the relay at an address. */
  serves(address: IpAddress): boolean;
  /** Gets what the judge takes; resolves when every connection is judged by it. Never rejects. */
  follow(update: JudgeUpdate): Promise<void>;
  /**
   * Judges the open connections from and to these addresses again and ends those that are denied.
   * Returns how many it ended. Never rejects.
   */
  recheck(addresses: readonly IpAddress[]): Promise<number>;
}

type PeerSetCopy =
  | { readonly kind: "pods"; readonly members: Set<IpAddress> }
  | { readonly kind: "pod-ports"; readonly members: Map<string, PodPort> }
  | PeerSet & { readonly kind: "blocks" };

/** A copy of a plan that follows its changes. */
interface PlanCopy extends ViewedParts {
  readonly closed: CidrCover;
  readonly pods: Map<PodKey, PodPlan>;
  readonly podsByAddress: Map<IpAddress, PodPlan>;
  readonly lists: Map<RuleListId, RuleList>;
  readonly peers: Map<PeerSetId, PeerSetCopy>;
}

/** The policies of one IP family, for a relay. Before the first plan, only closed ranges count. */
export class ConnectionJudge {
  /** Set by the relay that asks. */
  relay: PolicedRelay | undefined;
  /** Of tasks with pauses that take a plan, or read the copy. */
  readonly turns = new OneAtATime();
  #copy = emptyCopy([]);
  #view: PolicyView = viewParts(this.#copy);
  #hasPlan = false;
  #deny: PolicyPlan["deny"] = { action: "drop" };
  /** Parts of the plan that comes next. */
  #collected = emptyParts();

  /** Whether denied connections are to be logged. */
  get logsDenials(): boolean {
    return this.#deny.log !== undefined;
  }

  /** Judges a connection at both ends. */
  judge(connection: Connection): Judgement {
    return judgeConnection(this.#view, connection);
  }

  /** Returns the pod that has an address. */
  podAt(address: IpAddress): PodPlan | undefined {
    return this.#copy.podsByAddress.get(address);
  }

  /** Cuts off the addresses of these ranges until there is a plan, which has its own. */
  close(ranges: readonly Cidr[]): void {
    if (this.#hasPlan) return;
    this.#use(emptyCopy(ranges));
    void this.relay?.follow({ kind: "closed", ranges });
  }

  /** Everything that a new judge needs to judge as this one. */
  snapshot(): JudgeUpdate {
    const { closed, lists, peers, pods } = this.#copy;
    if (!this.#hasPlan) return { kind: "closed", ranges: closed.outermost };
    const plan = { closedRanges: closed.outermost, deny: this.#deny, lists, peers, pods };
    return { kind: "plan", plan, changes: EVERYTHING };
  }

  /** Has the relay follow a plan that was taken. Resolves when it does. */
  async pass(plan: PolicyPlan, changes: PolicyPlanChanges): Promise<void> {
    await this.relay?.follow({ kind: "plan", plan: changedParts(plan, changes), changes });
  }

  /** Takes an update of the judge that this one follows, as {@linkcode takeInSteps} does. */
  *followInSteps(update: JudgeUpdate): Generator<void, void, void> {
    if (update.kind === "closed") return this.close(update.ranges);
    const collected = this.#collected;
    for (const addTo of eachPart(update.kind === "parts" ? update.parts : update.plan)) {
      addTo(collected);
      yield;
    }
    if (update.kind === "parts") return;
    this.#collected = emptyParts();
    yield* this.takeInSteps({ ...update.plan, ...collected }, update.changes);
  }

  /**
   * Takes a plan with its changes since the last one that was taken. It must not change between the
   * steps; connections may be judged.
   */
  *takeInSteps(plan: JudgedPlan, changes: PolicyPlanChanges): Generator<void, void, void> {
    const { full } = changes;
    const copy = full ? emptyCopy(plan.closedRanges) : this.#copy;
    // Sets come before the lists that name them, and go after them.
    for (const id of full ? plan.peers.keys() : changes.peers) {
      const set = plan.peers.get(id);
      if (set) copy.peers.set(id, copyOf(set));
      yield;
    }
    for (const [id, change] of full ? [] : changes.members) {
      const set = copy.peers.get(id);
      if (set && !changes.peers.has(id)) changeMembers(set, change);
      yield;
    }
    for (const id of full ? plan.lists.keys() : changes.lists) {
      const list = plan.lists.get(id);
      if (list) copy.lists.set(id, list);
      yield;
    }
    for (const key of full ? plan.pods.keys() : changes.pods) {
      replacePod(copy, key, plan.pods.get(key));
      yield;
    }
    for (const id of changes.lists) if (!plan.lists.has(id)) copy.lists.delete(id);
    for (const id of changes.peers) if (!plan.peers.has(id)) copy.peers.delete(id);
    this.#deny = plan.deny;
    if (!full) return;
    this.#hasPlan = true;
    this.#use(copy);
  }

  #use(copy: PlanCopy): void {
    this.#copy = copy;
    this.#view = viewParts(copy);
  }
}

const EVERYTHING: PolicyPlanChanges = {
  full: true,
  pods: new Set(),
  lists: new Set(),
  peers: new Set(),
  members: new Map(),
};

/** The plan without what has not changed. */
function changedParts(plan: PolicyPlan, changes: PolicyPlanChanges): JudgedPlan {
  const { closedRanges, deny, lists, peers, pods } = plan;
  if (changes.full) return { closedRanges, deny, lists, peers, pods };
  return {
    closedRanges,
    deny,
    lists: entriesOf(lists, changes.lists),
    peers: entriesOf(peers, changes.peers),
    pods: entriesOf(pods, changes.pods),
  };
}

function entriesOf<Key, Value>(
  map: ReadonlyMap<Key, Value>,
  keys: ReadonlySet<Key>,
): ReadonlyMap<Key, Value> {
  const found = new Map<Key, Value>();
  for (const key of keys) {
    const value = map.get(key);
    if (value !== undefined) found.set(key, value);
  }
  return found;
}

function emptyCopy(closedRanges: readonly Cidr[]): PlanCopy {
  return {
    pods: new Map(),
    podsByAddress: new Map(),
    lists: new Map(),
    peers: new Map(),
    closed: new CidrCover(closedRanges),
  };
}

function copyOf(set: PeerSet): PeerSetCopy {
  switch (set.kind) {
    case "pods":
      return { kind: set.kind, members: new Set(set.members) };
    case "pod-ports":
      return { kind: set.kind, members: new Map(set.members) };
    case "blocks":
      return set;
  }
}

function changeMembers(set: PeerSetCopy, { added, removed }: PeerSetChange): void {
  if (set.kind === "blocks") return;
  for (const member of removed) set.members.delete(memberKey(member) as IpAddress);
  for (const member of added) {
    if (typeof member === "string") { if (set.kind === "pods") set.members.add(member); }
    else if (set.kind === "pod-ports") set.members.set(memberKey(member), member);
  }
}

function replacePod(
  { pods, podsByAddress }: PlanCopy,
  key: PodKey,
  pod: PodPlan | undefined,
): void {
  const before = pods.get(key);
  for (const address of before?.addresses ?? []) {
    if (podsByAddress.get(address) === before) podsByAddress.delete(address);
  }
  if (pod === undefined) pods.delete(key);
  else {
    pods.set(key, pod);
    for (const address of pod.addresses) podsByAddress.set(address, pod);
  }
}

/** The parts of a plan that a judge reads. */
type JudgedPlan = Pick<PolicyPlan, "closedRanges" | "deny" | "lists" | "peers" | "pods">;

/** Pods, lists and sets of a plan. */
type PlanParts = Pick<JudgedPlan, "lists" | "peers" | "pods">;

/** Changed parts of a plan, or ranges to close before one. */
export type JudgeUpdate =
  | { readonly kind: "plan"; readonly plan: JudgedPlan; readonly changes: PolicyPlanChanges }
  /** Some parts of the plan that comes next. */
  | { readonly kind: "parts"; readonly parts: PlanParts }
  | { readonly kind: "closed"; readonly ranges: readonly Cidr[] };

/** Whether a judge that follows an update knows everything, whatever it knew before. */
export function isComplete(update: JudgeUpdate): boolean {
  return update.kind === "closed" || (update.kind === "plan" && update.changes.full);
}

/** Parts in one piece: copying them takes a millisecond or two. */
const MOST_PARTS = 1024;

/**
 * Splits an update: copying one of 10,000 policies at once would stop a thread for 100 ms. Each rule and
 * member counts as a part.
 */
export function* piecesOf(
  update: JudgeUpdate,
  mostParts = MOST_PARTS,
): Generator<JudgeUpdate, void, void> {
  if (update.kind !== "plan") return yield update;
  let [parts, count] = [emptyParts(), 0];
  for (const addTo of eachPart(update.plan)) {
    count += addTo(parts);
    if (count < mostParts) continue;
    yield { kind: "parts", parts };
    [parts, count] = [emptyParts(), 0];
  }
  yield { ...update, plan: { ...update.plan, ...parts } };
}

/** Parts of a plan that are put together. */
interface CollectedParts extends PlanParts {
  readonly lists: Map<RuleListId, RuleList>;
  readonly peers: Map<PeerSetId, PeerSet>;
  readonly pods: Map<PodKey, PodPlan>;
}

/** Makes a collection without parts. */
function emptyParts(): CollectedParts {
  return { lists: new Map(), peers: new Map(), pods: new Map() };
}

/** A step for each part: adds it to a collection, and returns its size. */
function* eachPart(
  { lists, peers, pods }: PlanParts,
): Generator<(to: CollectedParts) => number, void, void> {
  for (const [id, set] of peers) yield (to) => (to.peers.set(id, set), 1 + set.members.size);
  for (const [id, list] of lists) yield (to) => (to.lists.set(id, list), 1 + list.rules.length);
  for (const [key, pod] of pods) yield (to) => (to.pods.set(key, pod), 1);
}
