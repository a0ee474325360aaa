/**
 * NetworkPolicy in one IP family: planner, loop, data plane, and what follows a sync.
 *
 * @module
 */
import type { ObjectProblem } from "../../api/problem.ts";
import type { LoopId } from "../../engine/loop_id.ts";
import type { AppliedSync, SyncEvent } from "../../engine/sync_event.ts";
import { SyncLoop, type SyncLoopDependencies } from "../../engine/sync_loop.ts";
import type { SyncRunnerOptions } from "../../engine/sync_runner.ts";
import type { IpFamily } from "../../net/ip_address.ts";
import type { Policy } from "../../policy/policy.ts";
import type { PodKey, PolicyKey, PolicyPlan, PolicyPlanChanges } from "../../policy/policy_plan.ts";
import {
  PolicyPlanner,
  type PolicyPlanOptions,
  type PolicyPlanSettings,
} from "../../policy/policy_planner.ts";
import type { PolicyBackend, PolicySyncReport } from "./policy_backend.ts";
import type { PolicyInputs } from "./policy_inputs.ts";
import type { RelayedPolicies } from "./relayed_policies.ts";
import type { LoopListener, NamedItem, PolicyChange } from "../change_listener.ts";
import { effectsOf } from "./policy_effects.ts";

/** The log messages of syncs. */
const TEXTS = {
  synced: "Synced policy rules",
  failed: "Cannot sync policy rules; the last applied state stays and the changes are tried again",
  quarantined: "NetworkPolicy is in quarantine: its pods stay isolated; it is tried again",
  released: "NetworkPolicy is out of quarantine",
  item: "networkPolicy",
};

/** The dependencies of a family. */
export interface PolicyFamilyDependencies extends SyncLoopDependencies {
  readonly inputs: PolicyInputs;
  readonly backend: PolicyBackend;
  /** Present if kube-relay relays connections itself. */
  readonly relayed: RelayedPolicies | undefined;
  readonly recorder: LoopListener<PolicyChange, NamedItem>;
  /** Called after each successful sync. Must not throw. */
  readonly onSynced: (sync: AppliedSync<PolicyPlan, PolicyPlanChanges, PolicySyncReport>) => void;
}

type PolicyLoop = SyncLoop<PolicyPlan, PolicyPlanChanges, PolicyKey, PolicySyncReport>;

/** Keeps one family's rules in step with the cluster. */
export class PolicyFamily {
  readonly family: IpFamily;
  readonly backend: PolicyBackend;
  readonly loop: PolicyLoop;
  readonly #dependencies: PolicyFamilyDependencies;
  readonly #planner: PolicyPlanner;
  /** Policies whose problems have not been logged. */
  readonly #news = new Set<Policy>();
  /** The pods that the last plan had. */
  readonly #planned = new Set<PodKey>();
  /** The changes of the running sync. They are kept if it fails. */
  #taken: PolicyPlanChanges | undefined;
  #isPending = true;
  #isAdopted = false;

  constructor(
    dependencies: PolicyFamilyDependencies,
    { runner, ...options }: PolicyPlanOptions & { readonly runner: SyncRunnerOptions },
  ) {
    const { inputs, backend, recorder } = dependencies;
    const { family } = options;
    this.family = family;
    this.backend = backend;
    this.#dependencies = dependencies;
    const planner = this.#planner = new PolicyPlanner(inputs.state, options);
    const id: LoopId = { controller: "network-policy", family };
    const isPending = () => this.#isPending;
    this.loop = new SyncLoop(dependencies, {
      id,
      dataPlane: {
        start: () => this.#adopt().catch((error) => this.#notAdopted(error)),
        sync: (plan, changes) => this.#sync(plan, changes),
      },
      source: {
        get plan() {
          return planner.plan;
        },
        get pending() {
          return isPending();
        },
        collectChanges: () => this.#collectChanges(),
        failed: () => this.#failed(),
      },
      listeners: [{ on: (event) => this.#on(event) }, recorder],
      texts: TEXTS,
      runner,
    });
    const request = () => this.request();
    inputs.state.follow({
      podChanged: request,
      namespaceChanged: request,
      policiesChanged: (policies) => {
        for (const policy of policies) this.#news.add(policy);
        request();
      },
    });
  }

  /** The plan; it must not be used while another is made, see {@linkcode PolicyInputs.whenStill}. */
  get plan(): PolicyPlan {
    return this.#planner.plan;
  }

  /** Asks for a sync. */
  request(): void {
    this.#isPending = true;
    this.loop.request();
  }

  /** Notes an object that changed, for the change log. */
  seen(change: PolicyChange): void {
    this.#dependencies.recorder.seen(change);
  }

  /** Takes settings that changed. */
  setOptions(options: PolicyPlanSettings): void {
    this.#planner.setOptions(options);
    this.#dependencies.relayed?.setOptions(options);
    this.request();
  }

  async #collectChanges(): Promise<{
    readonly changes: PolicyPlanChanges;
    readonly problems: readonly ObjectProblem[];
  }> {
    const { inputs, recorder } = this.#dependencies;
    this.#isPending = false;
    recorder.drained();
    const news = [...this.#news];
    this.#news.clear();
    const changes = this.#taken = await inputs.plan(this.#planner);
    const { plan } = this.#planner;
    for (const effect of effectsOf(plan, changes, this.#planned)) recorder.planned(...effect);
    for (const key of changes.pods) {
      if (plan.pods.has(key)) this.#planned.add(key);
      else this.#planned.delete(key);
    }
    const current = news.filter((policy) => inputs.state.policies.get(policy.key) === policy);
    const problems = current.flatMap(({ problems }) => problems);
    return { changes, problems: [...problems, ...this.#planner.takeProblems()] };
  }

  /** Reads what an earlier run left. A host that is not ready for it must not keep Services from starting. */
  async #adopt(): Promise<void> {
    await this.backend.start();
    this.#isAdopted = true;
  }

  #notAdopted(error: unknown): void {
    this.#dependencies.logger.warn("Cannot read earlier policy rules; the first sync reads them", {
      ipFamily: this.family,
      error,
    });
  }

  async #sync(plan: PolicyPlan, changes: PolicyPlanChanges): Promise<PolicySyncReport> {
    // Relayed connections are judged even if the host refuses the rules.
    await this.#dependencies.relayed?.sync();
    if (!this.#isAdopted) await this.#adopt();
    return await this.backend.sync(plan, changes);
  }

  #on(event: SyncEvent<PolicyPlan, PolicyPlanChanges, PolicySyncReport>): void {
    if (event.kind !== "synced") return;
    this.#taken = undefined;
    this.#dependencies.onSynced(event);
  }

  #failed(): void {
    this.#isPending = true;
    if (this.#taken) this.#planner.putBack(this.#taken);
    this.#taken = undefined;
  }
}
