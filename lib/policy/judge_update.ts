/**
 * What judges in other threads need to follow a judge.
 *
 * @module
 */
import type { Cidr } from "../net/cidr.ts";
import type {
  PeerSet,
  PeerSetId,
  PodKey,
  PodPlan,
  PolicyPlan,
  PolicyPlanChanges,
  RuleList,
  RuleListId,
} from "./policy_plan.ts";

/** The parts of a plan that a judge reads. */
export type JudgedPlan = Pick<PolicyPlan, "closedRanges" | "deny" | "lists" | "peers" | "pods">;

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
export function emptyParts(): CollectedParts {
  return { lists: new Map(), peers: new Map(), pods: new Map() };
}

/** A step for each part: adds it to a collection, and returns its size. */
export function* eachPart(
  { lists, peers, pods }: PlanParts,
): Generator<(to: CollectedParts) => number, void, void> {
  for (const [id, set] of peers) yield (to) => (to.peers.set(id, set), 1 + set.members.size);
  for (const [id, list] of lists) yield (to) => (to.lists.set(id, list), 1 + list.rules.length);
  for (const [key, pod] of pods) yield (to) => (to.pods.set(key, pod), 1);
}
