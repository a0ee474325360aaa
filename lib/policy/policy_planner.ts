/**
 * Keeps the plan of one IP family up to date with the cluster. An update costs what its events touch.
 *
 * @module
 */
import { type ObjectProblem, ProblemCollector } from "../api/problem.ts";
import type { Cidr } from "../net/cidr.ts";
import { type IpAddress, type IpFamily, ipFamilyOf } from "../net/ip_address.ts";
import { atOnce } from "../net/steps.ts";
import { LivePeerSets, type PeerEvents, PendingPolicyChanges } from "./live_peer_sets.ts";
import { matchesQuery, type NamespaceLabels } from "./peer_source.ts";
import type { Policy } from "./policy.ts";
import type {
  DenySettings,
  Direction,
  PodKey,
  PodPlan,
  PolicyPlan,
  PolicyPlanChanges,
  RuleList,
  RuleListId,
  SharedLinks,
} from "./policy_plan.ts";
import { ownerAmong, type PolicyPod } from "./policy_pod.ts";
import type { PolicyState, PolicyStateListener } from "./policy_state.ts";
import {
  type ListNeed,
  MOST_NODE_RULES,
  MOST_RULES,
  type RefusedPods,
  RuleListCache,
  RuleRooms,
  type SourcedRuleList,
} from "./rule_lists.ts";

/** The inputs of a plan besides the cluster. */
export interface PolicyPlanOptions {
  readonly family: IpFamily;
  /** Pods of this node are local. */
  readonly nodeName: string;
  /** Whether pods of other nodes are planned as well. @default {false} */
  readonly includesRemotePods?: boolean;
  readonly deny: DenySettings;
  /** As {@linkcode PolicyPlan.closedRanges}. */
  readonly closedRanges: readonly Cidr[];
  /** Interfaces behind which pods of this node share a link. */
  readonly podLinks: readonly string[];
}

/** The options that may change. */
export type PolicyPlanSettings = Pick<PolicyPlanOptions, "closedRanges" | "deny" | "podLinks">;

/** A list that some pods have. */
interface UsedList extends SourcedRuleList {
  readonly id: RuleListId;
  uses: number;
}

/** The lists of a pod in a direction: one for each tier with an effect, in their order. */
type PodLists = Readonly<Record<Direction, readonly UsedList[]>>;

const DIRECTIONS = ["ingress", "egress"] as const;
const NO_LISTS: PodLists = { ingress: [], egress: [] };

/** The events since the last update: the first state of each changed object. */
interface PolicyEvents extends PeerEvents {
  readonly pods: Map<PodKey, PolicyPod | undefined>;
  readonly namespaces: Map<string, NamespaceLabels>;
  readonly nodeAddresses: Set<IpAddress>;
  /** The policies that came or went. */
  readonly policies: Set<Policy>;
}

function noEvents(): PolicyEvents {
  return {
    pods: new Map(),
    namespaces: new Map(),
    nodeAddresses: new Set(),
    policies: new Set(),
  };
}

/** No namespace has this name. */
const EVERY_NAMESPACE = "*";

/** Pods that one step of an update looks at. */
const PODS_PER_STEP = 64;

/** The plan of one family. */
export class PolicyPlanner implements PolicyStateListener {
  readonly #state: PolicyState;
  #options: PolicyPlanOptions;
  #events = noEvents();
  readonly #pending = new PendingPolicyChanges();
  readonly #peers: LivePeerSets;
  readonly #problems: ObjectProblem[] = [];
  readonly #pods = new Map<PodKey, PodPlan>();
  readonly #lists = new Map<RuleListId, RuleList>();
  readonly #usedLists = new Map<RuleListId, UsedList>();
  readonly #cache = new RuleListCache();
  readonly #rooms = new RuleRooms();
  readonly #listsOfPods = new Map<PodKey, PodLists>();
  /** Planned pods, also those without an address in this family. */
  readonly #plannedPods = new Set<PodKey>();
  readonly #isolated = { ingress: new Set<PodKey>(), egress: new Set<PodKey>() };
  #sharedLinks: SharedLinks = { ingress: [], egress: [] };
  /** The number of updates that have begun. */
  #revision = 0;

  /** Follows changes of the state from now on. The first update plans its present content. */
  constructor(state: PolicyState, options: PolicyPlanOptions) {
    this.#state = state;
    this.#options = options;
    this.#peers = new LivePeerSets(state, options.family, this.#pending);
    for (const key of state.pods.keys()) this.#events.pods.set(key, undefined);
    state.follow(this);
  }

  /** The plan of the last update. Its maps change with the next one, and only then. */
  get plan(): PolicyPlan {
    const { family, deny, closedRanges } = this.#options;
    const [pods, lists, peers] = [this.#pods, this.#lists, this.#peers.sets];
    const revision = this.#revision;
    const isStale = () => this.#revision !== revision;
    return {
      ...{ family, deny, closedRanges, sharedLinks: this.#sharedLinks, pods, lists, peers },
      get isStale() {
        return isStale();
      },
    };
  }

  /** Changes what does not come from the cluster. */
  setOptions(options: Partial<PolicyPlanSettings>): void {
    this.#options = { ...this.#options, ...options };
    this.#pending.markAll();
  }

  /**
   * Brings the plan up to date, and says what is different since the last update. Many events cost little
   * more than one where they concern the same pods, as in a first listing of policies.
   */
  update(): PolicyPlanChanges {
    return atOnce(this.updateInSteps());
  }

  /**
   * As {@linkcode update}, in steps of about a millisecond: a first plan of thousands of policies takes
   * a tenth of a second. Neither the state may change in between, nor may the plan be used.
   */
  *updateInSteps(): Generator<void, PolicyPlanChanges, void> {
    this.#revision++;
    const { pods, policies, namespaces } = this.#events;
    for (const policy of policies) yield* policy.readInSteps();
    yield* this.#peers.updateInSteps(this.#events);
    const affected = yield* this.#selectedBy(policies);
    // A ClusterNetworkPolicy may select pods by the labels of their namespace.
    for (const name of namespaces.keys()) {
      for (const { key } of this.#state.podsIn(name)) {
        if (this.#plannedPods.has(key)) affected.add(key);
      }
    }
    for (const [key, previous] of pods) {
      if (previous === undefined) continue;
      yield;
      affected.add(key);
      this.#plannedPods.delete(key);
      this.#addPodsLike(previous, affected);
    }
    let seen = 0;
    for (const key of pods.keys()) {
      // Most pods of a first listing are of other nodes, and passed in less time than a step takes.
      if (++seen % PODS_PER_STEP === 0) yield;
      const current = this.#state.pods.get(key);
      if (current === undefined || !this.#isPlanned(current)) continue;
      affected.add(key);
      this.#plannedPods.add(key);
      this.#addPodsLike(current, affected);
    }
    if (policies.size > 0) this.#cache.clear();
    this.#events = noEvents();
    const needs = new Map<PodKey, readonly ListNeed[]>();
    for (const key of affected) {
      const pod = this.#state.pods.get(key);
      const hasRules = pod && this.#isPlanned(pod) && this.#addressesOf(pod).length > 0;
      const own = hasRules ? yield* this.#needsOf(pod) : undefined;
      if (own) this.#rooms.set(pod!, own);
      else this.#rooms.delete(key);
      if (own) needs.set(key, own);
    }
    const { moved, refused } = this.#rooms.decide();
    for (const key of moved) affected.add(key);
    for (const each of refused) this.#noteRefused(each);
    // Released at last: a set that another pod still needs is not filled again.
    const replaced = [];
    for (const key of affected) {
      yield;
      replaced.push(yield* this.#replan(key, needs.get(key)));
    }
    for (const { ingress, egress } of replaced) {
      for (const list of [...ingress, ...egress]) this.#releaseList(list);
    }
    this.#findSharedLinks();
    return this.#pending.take();
  }

  /** The problems that updates found since the last call: pods with too many rules. */
  takeProblems(): readonly ObjectProblem[] {
    return this.#problems.splice(0);
  }

  /** The changes of an update could not be applied: the next one says that everything may differ. */
  forget(): void {
    this.#pending.markAll();
  }

  podChanged(key: PodKey, previous: PolicyPod | undefined): void {
    if (!this.#events.pods.has(key)) this.#events.pods.set(key, previous);
  }

  namespaceChanged(name: string, previous: NamespaceLabels): void {
    if (!this.#events.namespaces.has(name)) this.#events.namespaces.set(name, previous);
  }

  policiesChanged(policies: readonly Policy[]): void {
    for (const policy of policies) this.#events.policies.add(policy);
  }

  nodeChanged(addresses: readonly IpAddress[]): void {
    for (const address of addresses) this.#events.nodeAddresses.add(address);
  }

  /** Returns the planned pods that any of the policies selects. */
  *#selectedBy(policies: ReadonlySet<Policy>): Generator<void, Set<PodKey>, void> {
    const byNamespace = Map.groupBy(
      policies,
      ({ subject }) => subject?.scope.kind === "namespace" ? subject.scope.name : EVERY_NAMESPACE,
    );
    const found = new Set<PodKey>();
    for (const key of this.#plannedPods) {
      const pod = this.#state.pods.get(key);
      if (pod === undefined) continue;
      yield;
      const namespace = this.#state.namespaceLabels(pod.namespace);
      const own = [pod.namespace, EVERY_NAMESPACE].flatMap((name) => byNamespace.get(name) ?? []);
      const isSelected = own.some(({ subject }) =>
        subject && matchesQuery(subject, pod, namespace)
      );
      if (isSelected) found.add(key);
    }
    return found;
  }

  /** Adds the planned pods that have an address of this one. */
  #addPodsLike(pod: PolicyPod, affected: Set<PodKey>): void {
    if (!this.#isPlanned(pod)) return;
    for (const address of pod.claimed) {
      for (const each of this.#state.podsWith(address)) {
        if (this.#isPlanned(each)) affected.add(each.key);
      }
    }
  }

  #isPlanned({ nodeName }: PolicyPod): boolean {
    return this.#options.includesRemotePods === true || nodeName === this.#options.nodeName;
  }

  /**
   * The addresses of a pod that no other planned pod stands for. Pods that are not planned do not count:
   * what another node says about its pods must not end the isolation of one of this node.
   */
  #addressesOf(pod: PolicyPod): readonly IpAddress[] {
    return pod.claimed.filter((address) => {
      if (ipFamilyOf(address) !== this.#options.family) return false;
      const planned = [...this.#state.podsWith(address)].filter((each) => this.#isPlanned(each));
      return ownerAmong(planned)?.key === pod.key;
    });
  }

  /** Plans a pod. Returns the lists that it had. */
  *#replan(
    key: PodKey,
    needs: readonly ListNeed[] | undefined,
  ): Generator<void, PodLists, void> {
    const pod = this.#state.pods.get(key);
    const known = this.#pods.get(key);
    this.#noteIsolation(key);
    const addresses = pod && this.#isPlanned(pod) ? this.#addressesOf(pod) : [];
    const lists = pod && addresses.length > 0 ? yield* this.#acquireLists(pod, needs) : NO_LISTS;
    const before = this.#listsOfPods.get(key) ?? NO_LISTS;
    if (addresses.length === 0) {
      this.#listsOfPods.delete(key);
      if (this.#pods.delete(key)) this.#pending.markPod(key);
      return before;
    }
    this.#listsOfPods.set(key, lists);
    const isRemote = pod?.nodeName !== this.#options.nodeName;
    const [ingress, egress] = [lists.ingress[0]?.id, lists.egress[0]?.id];
    const isSame = known !== undefined && known.ingress === ingress && known.egress === egress &&
      `${known.addresses}` === `${addresses}` &&
      (known.isRemote ?? false) === isRemote;
    if (isSame) return before;
    this.#pods.set(key, {
      key,
      addresses,
      ...(ingress && { ingress }),
      ...(egress && { egress }),
      ...(isRemote && { isRemote }),
    });
    this.#pending.markPod(key);
    return before;
  }

  #noteIsolation(key: PodKey): void {
    const pod = this.#plannedPods.has(key) ? this.#state.pods.get(key) : undefined;
    const policies = pod ? this.#state.policiesOf(pod) : [];
    for (const direction of DIRECTIONS) {
      if (policies.some((policy) => policy.denies(direction))) this.#isolated[direction].add(key);
      else this.#isolated[direction].delete(key);
    }
  }

  #findSharedLinks(): void {
    const { podLinks } = this.#options;
    const [ingress, egress] = DIRECTIONS.map((each) => this.#isolated[each].size ? podLinks : []);
    const links = { ingress: ingress!, egress: egress! };
    if (JSON.stringify(links) === JSON.stringify(this.#sharedLinks)) return;
    this.#sharedLinks = links;
    this.#pending.markAll();
  }

  *#needsOf(pod: PolicyPod): Generator<void, readonly ListNeed[], void> {
    const policies = this.#state.policiesOf(pod);
    for (const policy of policies) yield* policy.readInSteps();
    const { family } = this.#options;
    yield;
    return DIRECTIONS.flatMap((direction) =>
      this.#cache.needsOf(policies, { pod, direction, family })
    );
  }

  *#acquireLists(
    pod: PolicyPod,
    known: readonly ListNeed[] | undefined,
  ): Generator<void, PodLists, void> {
    const needs = known ?? (yield* this.#needsOf(pod));
    const policies = this.#state.policiesOf(pod);
    const { family } = this.#options;
    const isRefused = this.#rooms.isRefused(pod.key);
    const mostRules = isRefused ? 0 : MOST_RULES;
    const made: Record<Direction, UsedList[]> = { ingress: [], egress: [] };
    for (const direction of DIRECTIONS) {
      const own = needs.filter((need) => need.direction === direction);
      for (
        const list of this.#cache.listsOf(own, policies, { pod, direction, family, mostRules })
      ) {
        if (list.list.excess && !isRefused) this.#noteExcess(pod.key, list);
        made[direction].push(yield* this.#acquireList(list));
      }
    }
    return made;
  }

  #noteExcess(key: PodKey, { list: { direction, policies, excess } }: SourcedRuleList): void {
    const problems = new ProblemCollector("Pod", key);
    const value = `${excess} of ${policies.length} policies, the first is ${policies[0]}`;
    const message =
      `More than ${MOST_RULES} rules, one for each set of peers and 15 ports, apply to the pod: ` +
      "it is isolated and they allow nothing; merge rules or peers";
    problems.report(`${direction} rules`, value, message);
    this.#problems.push(...problems.problems);
  }

  #noteRefused({ namespace, pods, ofPods, rules }: RefusedPods): void {
    const problems = new ProblemCollector("Namespace", namespace);
    const value = `${rules} for ${ofPods} pods of one node`;
    const message =
      `More than ${MOST_NODE_RULES} rules, one for each set of peers and 15 ports, apply to the ` +
      `pods: the ${pods.length} newest ones, first ${pods[0]}, are isolated and their policies ` +
      "allow nothing; merge rules, or give pods the same policies";
    problems.report("rules", value, message);
    this.#problems.push(...problems.problems);
  }

  *#acquireList(made: Omit<UsedList, "uses">): Generator<void, UsedList, void> {
    const known = this.#usedLists.get(made.id);
    if (known) {
      known.uses++;
      return known;
    }
    const added = { ...made, uses: 1 };
    this.#usedLists.set(made.id, added);
    this.#lists.set(made.id, made.list);
    this.#pending.markList(made.id);
    for (const source of made.sources.values()) {
      yield;
      if (source.kind === "blocks") yield* source.expandInSteps();
      else if (source.kind === "pod-ports") yield* source.within?.expandInSteps() ?? [];
      this.#peers.acquire(source);
    }
    return added;
  }

  #releaseList(used: UsedList): void {
    if (--used.uses > 0) return;
    this.#usedLists.delete(used.id);
    this.#lists.delete(used.id);
    this.#pending.markList(used.id);
    for (const source of used.sources.values()) this.#peers.release(source);
  }
}
