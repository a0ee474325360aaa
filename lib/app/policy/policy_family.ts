/**
 * NetworkPolicy in one IP family: planner, loop, data plane, and what follows a sync.
 *
 * @module
 */
import type { ObjectProblem } from "../../api/problem.ts";
import { syncPeriodsOf } from "../../config/configuration.ts";
import type { SyncReport } from "../../engine/data_plane.ts";
import type { LoopId } from "../../engine/loop_id.ts";
import { retryBackoff, SyncLoop } from "../../engine/sync_loop.ts";
import type { TaskGroup } from "../../engine/task_group.ts";
import { runInSlices } from "../../os/time_slice.ts";
import type { DriftFigures } from "../../metrics/proxy_metrics.ts";
import type { IpAddress, IpFamily } from "../../net/ip_address.ts";
import { createConntrack } from "../../os/conntrack.ts";
import { inspectPolicyPlan, type PolicyInspection } from "../../policy/inspect_policy_plan.ts";
import type { Policy } from "../../policy/policy.ts";
import type {
  PodKey,
  PodPlan,
  PolicyKey,
  PolicyPlan,
  PolicyPlanChanges,
  RuleListId,
} from "../../policy/policy_plan.ts";
import { PolicyPlanner, type PolicyPlanSettings } from "../../policy/policy_planner.ts";
import type { LoopListener, NamedItem, ObjectChange } from "../change_listener.ts";
import type { ControllerParts } from "../controllers.ts";
import { ConnectionCutter } from "./connection_cutter.ts";
import type { PolicyBackend, PolicyTool } from "./policy_backend.ts";
import { type PolicyCluster, RelayedPolicies } from "./relayed_policies.ts";

/** The log messages of syncs. */
const TEXTS = {
  synced: "Synced policy rules",
  failed: "Cannot sync policy rules; the last applied state stays and the changes are tried again",
  quarantined: "NetworkPolicy is in quarantine: its pods stay isolated; it is tried again",
  released: "NetworkPolicy is out of quarantine",
  item: "networkPolicy",
};

/** Longest time from one sync to the next. */
const MAX_SYNC_PERIOD_MS = 3_600_000;

/** The dependencies of a family. */
export interface PolicyFamilyDependencies extends ControllerParts {
  readonly cluster: PolicyCluster;
  readonly tasks: TaskGroup;
}

/** What a controller says of a family. */
export interface PolicyFamilyOptions {
  readonly family: IpFamily;
  /** `undefined` = no rules are written. */
  readonly tool: PolicyTool | undefined;
  readonly settings: PolicyPlanSettings;
  readonly isOwnNode: (address: IpAddress) => boolean;
  /** Called after each successful sync. Must not throw. */
  readonly onSynced: () => void;
}

/** Keeps one family's rules in step with the cluster. */
export class PolicyFamily {
  readonly family: IpFamily;
  /** Absent where kube-relay only judges what it relays. */
  readonly backend: PolicyBackend | undefined;
  readonly loop: SyncLoop<PolicyPlan, PolicyPlanChanges, PolicyKey, SyncReport<PolicyKey>>;
  readonly #dependencies: PolicyFamilyDependencies;
  readonly #planner: PolicyPlanner;
  readonly #recorder: LoopListener<NamedItem>;
  /** Present if kube-relay relays connections itself. */
  readonly #relayed: RelayedPolicies | undefined;
  /** Policies whose problems have not been logged. */
  readonly #news = new Set<Policy>();
  /** The pods that the last plan had. */
  readonly #planned = new Set<PodKey>();
  #isPending = true;
  #isAdopted = false;

  constructor(dependencies: PolicyFamilyDependencies, options: PolicyFamilyOptions) {
    const { family, settings } = options;
    const logger = dependencies.logger.with({ ipFamily: family });
    const edges = this.#dependencies = { ...dependencies, logger };
    const { changes, configuration: { proxy }, current, cluster, judges, nodeName } = edges;
    const { minSyncPeriod: minPeriodMs } = proxy.networkPolicy;
    const id: LoopId = { controller: "network-policy", family };
    const cutsConnections = () => current.proxy.networkPolicy.cutConnections;
    const planned = { family, nodeName, ...settings };
    const judge = judges.get(family);
    const metrics = edges.metrics.policies;
    this.family = family;
    this.#recorder = changes.follow(id, minPeriodMs);
    this.#planner = new PolicyPlanner(cluster.state, planned);
    this.#relayed = judge &&
      new RelayedPolicies({ ...edges, metrics, judge }, { cutsConnections, ...planned });
    // A repair may have left out a policy, which is to be reported and tried again.
    this.backend = createBackend(edges, options.tool, id, () => this.request());
    const cutter = this.backend && this.#startCutter(options.isOwnNode);
    const plan = () => this.plan;
    const isPending = () => this.#isPending;
    this.loop = new SyncLoop(edges, {
      id,
      dataPlane: {
        start: () => this.#adopt().catch((error) => this.#notAdopted(error)),
        sync: (plan, changes) => this.#sync(plan, changes),
      },
      source: {
        get plan() {
          return plan();
        },
        get pending() {
          return isPending();
        },
        collectChanges: () => this.#collectChanges(),
        failed: () => {
          this.#isPending = true;
          this.#planner.forget();
        },
      },
      listeners: [{
        on: (event) => {
          if (event.kind !== "synced") return;
          if (cutsConnections()) cutter?.synced(event.plan, event.changes);
          options.onSynced();
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
    cluster.state.follow({
      podChanged: request,
      namespaceChanged: request,
      policiesChanged: (policies) => {
        for (const policy of policies) this.#news.add(policy);
        request();
      },
    });
  }

  /** The plan; it must not be used while another is made, see {@linkcode PolicyCluster}. */
  get plan(): PolicyPlan {
    return this.#planner.plan;
  }

  /** Returns figures of the plan. */
  inspect(): PolicyInspection {
    const summary = this.backend?.summary ?? "no rules; relayed connections are judged";
    return inspectPolicyPlan(this.plan, summary);
  }

  /** Asks for a sync. */
  request(): void {
    this.#isPending = true;
    this.loop.request();
  }

  /** Notes an object that changed, for the change log. */
  seen(change: ObjectChange): void {
    this.#recorder.seen(change);
  }

  /** Takes settings that changed. */
  setOptions(options: PolicyPlanSettings): void {
    this.#planner.setOptions(options);
    this.#relayed?.setOptions(options);
    this.request();
  }

  #collectChanges(): Promise<{
    readonly changes: PolicyPlanChanges;
    readonly problems: readonly ObjectProblem[];
  }> {
    const { clock, cluster: { state, turns } } = this.#dependencies;
    return turns.run(async () => {
      this.#isPending = false;
      this.#recorder.drained();
      const changes = await runInSlices(clock, this.#planner.updateInSteps());
      this.#record(changes);
      const news = [...this.#news].filter((policy) => state.policies.get(policy.key) === policy);
      const problems = news.flatMap(({ problems }) => problems);
      this.#news.clear();
      return { changes, problems: [...problems, ...this.#planner.takeProblems()] };
    });
  }

  /** Notes for the change log what a plan changes: pods by name, sets of peers as a count. */
  #record({ pods, peers, members }: PolicyPlanChanges): void {
    const { plan } = this;
    for (const key of pods) {
      const pod = plan.pods.get(key);
      const item = { key: `pod ${key}`, words: pod ? podWords(plan, pod) : [] };
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

  #notAdopted(error: unknown): void {
    this.#dependencies.logger.warn("Cannot read earlier policy rules; the first sync reads them", {
      error,
    });
  }

  async #sync(plan: PolicyPlan, changes: PolicyPlanChanges): Promise<SyncReport<PolicyKey>> {
    // Relayed connections are judged even if the host refuses the rules.
    await this.#relayed?.sync();
    if (!this.#isAdopted) await this.#adopt();
    return await this.backend?.sync(plan, changes) ??
      { full: changes.full, operations: {}, quarantined: [] };
  }

  /** Starts what ends connections that rules judged; rules never see both ends of a relayed one. */
  #startCutter(isOwnNode: (address: IpAddress) => boolean): ConnectionCutter {
    const { cluster, tasks, judges, ...edges } = this.#dependencies;
    const { family } = this;
    const conntrack = createConntrack(edges.commands);
    const cutter = new ConnectionCutter({ ...edges, metrics: edges.metrics.policies, conntrack }, {
      family,
      withPlan: (read) => cluster.turns.run(() => Promise.resolve(read(this.plan))),
      isOwnNode: (address) =>
        isOwnNode(address) || judges.get(family)?.relay?.serves(address) === true,
    });
    tasks.run(`policy connections ${family}`, (signal) => cutter.run(signal));
    return cutter;
  }
}

function createBackend(
  edges: PolicyFamilyDependencies,
  tool: PolicyTool | undefined,
  loop: LoopId,
  request: () => void,
): PolicyBackend | undefined {
  const { changes, configuration: { proxy, mode }, metrics } = edges;
  const onDrift = (figures: DriftFigures) => {
    metrics.loops.driftFound(loop, figures);
    changes.driftFound(loop, figures);
    request();
  };
  const { syncPeriod: syncPeriodMs } = syncPeriodsOf(proxy, mode);
  return tool &&
    edges.policyBackends[tool]({ ...edges, onDrift }, { family: loop.family, syncPeriodMs });
}

function podWords({ lists }: PolicyPlan, { ingress, egress }: PodPlan): readonly string[] {
  const textOf = (id: RuleListId | undefined) => {
    const policies = (id && lists.get(id)?.policies) ?? [];
    return policies.length === 1 ? "1 policy" : `${policies.length} policies`;
  };
  const words = [
    ...(ingress ? [`ingress isolated by ${textOf(ingress)}`] : []),
    ...(egress ? [`egress isolated by ${textOf(egress)}`] : []),
  ];
  return words.length > 0 ? words : ["not isolated"];
}
