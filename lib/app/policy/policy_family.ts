/**
 * NetworkPolicy in one IP family: planner, loop, data plane, and what follows a sync.
 *
 * @module
 */
import type { ObjectProblem } from "../../api/problem.ts";
import { syncPeriodsOf } from "../../config/configuration.ts";
import type { SyncReport } from "../../engine/data_plane.ts";
import type { LoopId } from "../../engine/loop_id.ts";
import type { Source } from "../../engine/sync_event.ts";
import { retryBackoff, SyncLoop } from "../../engine/sync_loop.ts";
import type { TaskGroup } from "../../engine/task_group.ts";
import type { DriftFigures } from "../../metrics/proxy_metrics.ts";
import type { IpAddress, IpFamily } from "../../net/ip_address.ts";
import type { OneAtATime } from "../../net/one_at_a_time.ts";
import { createConntrack } from "../../os/conntrack.ts";
import { runInSlices } from "../../os/time_slice.ts";
import type { ConnectionJudge } from "../../policy/connection_judge.ts";
import type { Policy } from "../../policy/policy.ts";
import {
  type Direction,
  inspectPolicyPlan,
  listsFrom,
  type PodKey,
  type PolicyInspection,
  type PolicyKey,
  type PolicyPlan,
  type PolicyPlanChanges,
  type RuleListId,
} from "../../policy/policy_plan.ts";
import { PolicyPlanner, type PolicyPlanSettings } from "../../policy/policy_planner.ts";
import type { PolicyState } from "../../policy/policy_state.ts";
import type { LoopListener, NamedItem } from "../change_listener.ts";
import type { ControllerParts } from "../controllers.ts";
import { ConnectionCutter, suspectAddresses } from "./connection_cutter.ts";
import type { PolicyBackend, PolicyTool } from "./policy_backend.ts";

/** The log messages of syncs. */
const TEXTS = {
  synced: "Synced policy rules",
  failed: "Cannot sync policy rules; the last applied state stays and the changes are tried again",
  quarantined: "A policy is in quarantine: it allows nothing until it is tried again",
  released: "A policy is out of quarantine",
  item: "networkPolicy",
};

/** Longest time from one sync to the next. */
const MAX_SYNC_PERIOD_MS = 3_600_000;

type PolicySource = Source<PolicyPlan, PolicyPlanChanges, PolicyKey, SyncReport<PolicyKey>>;

/** Keeps one family's rules in step with the cluster. */
export class PolicyFamily implements PolicySource {
  readonly family: IpFamily;
  /** Absent where kube-relay only judges what it relays. */
  readonly backend: PolicyBackend | undefined;
  readonly loop: SyncLoop<PolicyPlan, PolicyPlanChanges, PolicyKey, SyncReport<PolicyKey>>;
  readonly #dependencies: ControllerParts;
  readonly #state: PolicyState;
  readonly #turns: OneAtATime;
  readonly #planner: PolicyPlanner;
  readonly #recorder: LoopListener<NamedItem>;
  /** Judges what kube-relay relays itself; absent if it relays nothing. */
  readonly #judge: ConnectionJudge | undefined;
  /**
   * Plans for the judge, with the pods of every node: only the relay sees the client of a connection to
   * another node, where it comes from this node.
   */
  readonly #relayed: PolicyPlanner | undefined;
  /** Policies whose problems have not been logged. */
  readonly #news = new Set<Policy>();
  /** The pods that the last plan had. */
  readonly #planned = new Set<PodKey>();
  #isPending = true;
  #isAdopted = false;

  /**
   * `turns`: of events, of plans, which are made in pieces while the state is still, and of readers of a
   * plan. `tool`: `undefined` = no rules are written. `onSynced` is called after each successful sync, and
   * must not throw.
   */
  constructor(
    parts: ControllerParts,
    { state, turns }: { readonly state: PolicyState; readonly turns: OneAtATime },
    tasks: TaskGroup,
    { family, tool, settings, isOwnNode, onSynced }: {
      readonly family: IpFamily;
      readonly tool: PolicyTool | undefined;
      readonly settings: PolicyPlanSettings;
      readonly isOwnNode: (address: IpAddress) => boolean;
      readonly onSynced: () => void;
    },
  ) {
    const logger = parts.logger.with({ ipFamily: family });
    const edges = this.#dependencies = { ...parts, logger };
    const { changes, configuration: { proxy, mode }, metrics, nodeName } = edges;
    const { minSyncPeriod: minPeriodMs } = proxy.networkPolicy;
    const id: LoopId = { controller: "network-policy", family };
    const planned = { family, nodeName, ...settings };
    const judge = this.#judge = edges.judges.get(family);
    this.family = family;
    this.#state = state;
    this.#turns = turns;
    this.#recorder = changes.follow(id, minPeriodMs);
    this.#planner = new PolicyPlanner(state, planned);
    // A relay has the packets of its own sockets only.
    const remote = { ...planned, podLinks: [], includesRemotePods: true };
    this.#relayed = judge && new PolicyPlanner(state, remote);
    const onDrift = (figures: DriftFigures) => {
      metrics.driftFound(id, figures);
      changes.driftFound(id, figures);
      // A repair may have left out a policy, which is to be reported and tried again.
      this.request();
    };
    const { syncPeriod: syncPeriodMs } = syncPeriodsOf(proxy, mode);
    this.backend = tool && edges.policyBackends[tool]({ ...edges, onDrift }, {
      ...{ family, syncPeriodMs },
    });
    // Rules never see both ends of a relayed connection, so it is cut by the relay.
    const cutter = this.backend && new ConnectionCutter(
      { ...edges, metrics, conntrack: createConntrack(edges.commands) },
      family,
      (read) => turns.run(() => Promise.resolve(read(this.plan))),
      (address) => isOwnNode(address) || judge?.relay?.serves(address) === true,
    );
    if (cutter) tasks.run(`policy connections ${family}`, (signal) => cutter.run(signal));
    this.loop = new SyncLoop(edges, {
      id,
      dataPlane: {
        start: () =>
          this.#adopt().catch((error) =>
            logger.warn("Cannot read earlier policy rules; the first sync reads them", { error })
          ),
        sync: (plan, changes) => this.#sync(plan, changes),
      },
      source: this,
      listeners: [{
        on: (event) => {
          if (event.kind !== "synced") return;
          if (this.#cutsConnections) cutter?.synced(event.plan, event.changes);
          onSynced();
        },
      }, this.#recorder],
      texts: TEXTS,
      periods: {
        minPeriodMs,
        maxPeriodMs: MAX_SYNC_PERIOD_MS,
        retryMs: retryBackoff(edges.random),
      },
    });
    const request = () => this.request();
    state.follow({
      podChanged: request,
      namespaceChanged: request,
      nodeChanged: request,
      policiesChanged: (policies) => {
        for (const policy of policies) this.#news.add(policy);
        request();
      },
    });
  }

  /** The plan; it must not be used while another is made, outside of its turns. */
  get plan(): PolicyPlan {
    return this.#planner.plan;
  }

  get pending(): boolean {
    return this.#isPending;
  }

  get #cutsConnections(): boolean {
    return this.#dependencies.current.proxy.networkPolicy.cutConnections;
  }

  /** Returns figures of the plan. */
  inspect(): PolicyInspection {
    return inspectPolicyPlan(
      this.plan,
      this.backend?.summary ?? "no rules; relayed connections are judged",
    );
  }

  request(): void {
    this.#isPending = true;
    this.loop.request();
  }

  /** Notes an object that changed, for the change log. */
  seen(change: Parameters<LoopListener<NamedItem>["seen"]>[0]): void {
    this.#recorder.seen(change);
  }

  /** Takes settings that changed. */
  setOptions(options: PolicyPlanSettings): void {
    this.#planner.setOptions(options);
    this.#relayed?.setOptions({ deny: options.deny, closedRanges: options.closedRanges });
    this.request();
  }

  /** As {@linkcode Source.collectChanges}; the planner names what failed before. */
  collectChanges(): Promise<{
    readonly changes: PolicyPlanChanges;
    readonly problems: readonly ObjectProblem[];
  }> {
    return this.#turns.run(async () => {
      this.#isPending = false;
      this.#recorder.drained();
      const changes = await runInSlices(this.#dependencies.clock, this.#planner.updateInSteps());
      this.#record(changes);
      const { policies } = this.#state;
      const news = [...this.#news].filter((policy) => policies.get(policy.key) === policy);
      const problems = news.flatMap(({ problems }) => problems);
      this.#news.clear();
      return { changes, problems: [...problems, ...this.#planner.takeProblems()] };
    });
  }

  failed(): void {
    this.#isPending = true;
    this.#planner.forget();
  }

  /** Notes for the change log what a plan changes: pods by name, sets of peers as a count. */
  #record({ pods, peers, members }: PolicyPlanChanges): void {
    const { plan } = this;
    const decidedBy = (direction: Direction, id: RuleListId) => {
      const lists = [...listsFrom(plan.lists, id)];
      const count = lists.reduce((sum, { policies }) => sum + policies.length, 0);
      const isIsolated = lists.some(({ tier }) => tier === "NetworkPolicy");
      return `${direction} ${isIsolated ? "isolated" : "decided"} by ` +
        (count === 1 ? "1 policy" : `${count} policies`);
    };
    for (const key of pods) {
      const pod = plan.pods.get(key);
      const words = (["ingress", "egress"] as const).flatMap((direction) =>
        pod?.[direction] ? [decidedBy(direction, pod[direction])] : []
      );
      const item = { key: `pod ${key}`, words: words.length > 0 ? words : ["not isolated"] };
      this.#recorder.planned(this.#planned.has(key) ? item : undefined, pod && item);
      if (pod) this.#planned.add(key);
      else this.#planned.delete(key);
    }
    const sets = peers.size + members.size;
    if (sets === 0) return;
    const key = sets === 1 ? "1 set of peers" : `${sets} sets of peers`;
    const newSets = [...peers].filter((id) => plan.peers.has(id)).length;
    const [added, removed] = (["added", "removed"] as const).map((part) =>
      members.values().reduce((sum, change) => sum + change[part].length, 0)
    );
    const words = [
      ...(newSets > 0 ? [`${newSets} new`] : []),
      ...(newSets < peers.size ? [`${peers.size - newSets} gone`] : []),
      ...(added ? [`${added} ${added === 1 ? "member" : "members"} new`] : []),
      ...(removed ? [`${removed} ${removed === 1 ? "member" : "members"} gone`] : []),
    ];
    this.#recorder.planned({ key, words }, { key, words });
  }

  /** Reads what an earlier run left. A host that is not ready for it must not keep Services from starting. */
  async #adopt(): Promise<void> {
    await this.backend?.start();
    this.#isAdopted = true;
  }

  async #sync(plan: PolicyPlan, changes: PolicyPlanChanges): Promise<SyncReport<PolicyKey>> {
    // Relayed connections are judged even if the host refuses the rules.
    if (this.#judge && this.#relayed) await this.#syncJudge(this.#judge, this.#relayed);
    if (!this.#isAdopted) await this.#adopt();
    return await this.backend?.sync(plan, changes) ??
      { full: changes.full, operations: {}, quarantined: [] };
  }

  /** Gives the judge a plan, and ends the relayed connections that it denies. */
  async #syncJudge(judge: ConnectionJudge, planner: PolicyPlanner): Promise<void> {
    const { clock, logger, metrics } = this.#dependencies;
    const changes = await this.#turns.run(() => runInSlices(clock, planner.updateInSteps()));
    const { plan } = planner;
    await judge.turns.run(() => runInSlices(clock, judge.takeInSteps(plan, changes)));
    await judge.pass(plan, changes);
    if (!this.#cutsConnections) return;
    const connections = await judge.relay?.recheck(suspectAddresses(plan, changes)) ?? 0;
    if (connections === 0) return;
    metrics.connectionsCut(this.family, connections);
    logger.info("Cut relayed connections that NetworkPolicies do not allow", { connections });
  }
}
