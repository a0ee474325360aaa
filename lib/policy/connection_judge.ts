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
  viewParts,
} from "./judge_connection.ts";
import {
  memberKey,
  type PeerMember,
  type PeerSet,
  type PeerSetChange,
  type PeerSetId,
  type PodKey,
  type PodPlan,
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

/** An edit of the copy of a judge. Sets come before the lists that name them, and go after them. */
export type JudgeEdit =
  /** Before the first plan, addresses of these ranges are cut off. */
  | { readonly kind: "closed"; readonly ranges: readonly Cidr[] }
  /** A whole plan follows; it counts once it has ended. */
  | { readonly kind: "begin"; readonly closedRanges: readonly Cidr[] }
  /** Of what comes without content, there is none any more. */
  | { readonly kind: "set"; readonly id: PeerSetId; readonly set?: PeerSet }
  | { readonly kind: "members"; readonly id: PeerSetId; readonly change: PeerSetChange }
  | { readonly kind: "list"; readonly id: RuleListId; readonly list?: RuleList }
  | { readonly kind: "pod"; readonly key: PodKey; readonly pod: PodPlan | undefined }
  | { readonly kind: "end"; readonly deny: PolicyPlan["deny"]; readonly isWhole: boolean };

/** What a judge needs to judge as another one, or some of it. */
export type JudgeUpdate = readonly JudgeEdit[];

/** The parts of a plan that a judge reads. */
type JudgedPlan = Pick<PolicyPlan, "closedRanges" | "deny" | "lists" | "peers" | "pods">;

type PeerSetCopy =
  | { readonly kind: "pods" | "pod-ports"; readonly members: Map<string, PeerMember> }
  | PeerSet & { readonly kind: "blocks" };

/** A copy of a plan that follows its changes. */
class PlanCopy {
  readonly closed: CidrCover;
  readonly pods = new Map<PodKey, PodPlan>();
  readonly podsByAddress = new Map<IpAddress, PodPlan>();
  readonly lists = new Map<RuleListId, RuleList>();
  readonly peers = new Map<PeerSetId, PeerSetCopy>();

  constructor(closedRanges: readonly Cidr[]) {
    this.closed = new CidrCover(closedRanges);
  }

  setPod(key: PodKey, pod: PodPlan | undefined): void {
    const before = this.pods.get(key);
    for (const address of before?.addresses ?? []) {
      if (this.podsByAddress.get(address) === before) this.podsByAddress.delete(address);
    }
    for (const address of pod?.addresses ?? []) this.podsByAddress.set(address, pod!);
    if (pod) this.pods.set(key, pod);
    else this.pods.delete(key);
  }

  setPeers(id: PeerSetId, set: PeerSet | undefined): void {
    if (set === undefined) this.peers.delete(id);
    else if (set.kind === "blocks") this.peers.set(id, set);
    else this.peers.set(id, { kind: set.kind, members: new Map(set.members) });
  }

  changeMembers(id: PeerSetId, { added, removed }: PeerSetChange): void {
    const set = this.peers.get(id);
    if (set === undefined || set.kind === "blocks") return;
    for (const member of removed) set.members.delete(memberKey(member));
    for (const member of added) set.members.set(memberKey(member), member);
  }
}

/** The policies of one IP family, for a relay. Before the first plan, only closed ranges count. */
export class ConnectionJudge {
  /** Set by the relay that asks. */
  relay: PolicedRelay | undefined;
  /** Of tasks with pauses that take a plan, or read the copy. */
  readonly turns = new OneAtATime();
  #copy = new PlanCopy([]);
  #view: PolicyView = viewParts(this.#copy);
  #hasPlan = false;
  #deny: PolicyPlan["deny"] = { action: "drop" };
  /** A whole plan that has not ended. */
  #next: PlanCopy | undefined;

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
    this.#use(new PlanCopy(ranges));
    void this.relay?.follow([{ kind: "closed", ranges }]);
  }

  /** Everything that a new judge needs to judge as this one. */
  snapshot(): JudgeUpdate {
    const { closed: { outermost: closedRanges }, lists, peers, pods } = this.#copy;
    if (!this.#hasPlan) return [{ kind: "closed", ranges: closedRanges }];
    return [...editsOf({ closedRanges, deny: this.#deny, lists, peers, pods })];
  }

  /** Has the relay follow a plan that was taken. Resolves when it does. */
  async pass(plan: PolicyPlan, changes: PolicyPlanChanges): Promise<void> {
    await this.relay?.follow([...editsOf(plan, changes)]);
  }

  /**
   * Takes a plan with its changes since the last one that was taken. It must not change between the
   * steps; connections may be judged.
   */
  takeInSteps(plan: JudgedPlan, changes: PolicyPlanChanges): Generator<void, void, void> {
    return this.followInSteps(editsOf(plan, changes));
  }

  /** Takes edits in steps. Each leaves a copy by which connections may be judged. */
  *followInSteps(edits: Iterable<JudgeEdit>): Generator<void, void, void> {
    for (const edit of edits) {
      this.#apply(edit);
      yield;
    }
  }

  #apply(edit: JudgeEdit): void {
    const copy = this.#next ?? this.#copy;
    switch (edit.kind) {
      case "closed":
        return this.close(edit.ranges);
      case "begin":
        this.#next = new PlanCopy(edit.closedRanges);
        return;
      case "set":
        return copy.setPeers(edit.id, edit.set);
      case "members":
        return copy.changeMembers(edit.id, edit.change);
      case "list":
        if (edit.list) copy.lists.set(edit.id, edit.list);
        else copy.lists.delete(edit.id);
        return;
      case "pod":
        return copy.setPod(edit.key, edit.pod);
      case "end":
        this.#deny = edit.deny;
        if (!edit.isWhole) return;
        this.#hasPlan = true;
        this.#next = undefined;
        this.#use(copy);
    }
  }

  #use(copy: PlanCopy): void {
    this.#copy = copy;
    this.#view = viewParts(copy);
  }
}

/** The edits that make a plan of the last one. `changes`: absent = the last one is not known. */
function* editsOf(
  { closedRanges, deny, lists, peers, pods }: JudgedPlan,
  changes?: PolicyPlanChanges,
): Generator<JudgeEdit, void, void> {
  const known = changes?.full ? undefined : changes;
  if (!known) yield { kind: "begin", closedRanges };
  for (const id of known?.peers ?? peers.keys()) {
    const set = peers.get(id);
    if (set) yield { kind: "set", id, set };
  }
  for (const [id, change] of known?.members ?? []) {
    if (!known!.peers.has(id)) yield { kind: "members", id, change };
  }
  for (const id of known?.lists ?? lists.keys()) {
    const list = lists.get(id);
    if (list) yield { kind: "list", id, list };
  }
  for (const key of known?.pods ?? pods.keys()) yield { kind: "pod", key, pod: pods.get(key) };
  for (const id of known?.lists ?? []) if (!lists.has(id)) yield { kind: "list", id };
  for (const id of known?.peers ?? []) if (!peers.has(id)) yield { kind: "set", id };
  yield { kind: "end", deny, isWhole: !known };
}

/** Whether a judge that follows an update knows everything, whatever it knew before. */
export function isComplete(update: JudgeUpdate): boolean {
  return update.some((edit) => edit.kind === "closed" || edit.kind === "end" && edit.isWhole);
}

/** Rules, members and other parts in one piece: copying them takes a millisecond or two. */
const MOST_PARTS = 1024;

/** Splits an update: copying one of 10,000 policies at once would stop a thread for 100 ms. */
export function* piecesOf(
  update: JudgeUpdate,
  mostParts = MOST_PARTS,
): Generator<JudgeUpdate, void, void> {
  let [piece, parts]: [JudgeEdit[], number] = [[], 0];
  for (const edit of update) {
    piece.push(edit);
    parts += sizeOf(edit);
    if (parts < mostParts) continue;
    yield piece;
    [piece, parts] = [[], 0];
  }
  if (piece.length > 0) yield piece;
}

function sizeOf(edit: JudgeEdit): number {
  if (edit.kind === "set") return 1 + (edit.set?.members.size ?? 0);
  if (edit.kind === "list") return 1 + (edit.list?.rules.length ?? 0);
  return edit.kind === "members" ? 1 + edit.change.added.length + edit.change.removed.length : 1;
}
