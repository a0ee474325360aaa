import type { CleanupReport, SyncReport } from "../../lib/engine/data_plane.ts";
import { Reconciler } from "../../lib/engine/reconciler.ts";
import { SyncFailure } from "../../lib/engine/sync_failure.ts";
import { messageOf } from "../../lib/log/message_of.ts";
import type { IpFamily } from "../../lib/net/ip_address.ts";
import { OneAtATime } from "../../lib/net/one_at_a_time.ts";
import type { DeniedPackets } from "../../lib/policy/inspect_policy_plan.ts";
import type {
  Direction,
  PolicyKey,
  PolicyPlan,
  PolicyPlanChanges,
} from "../../lib/policy/policy_plan.ts";
import type { DataPlaneDifference } from "../../lib/proxy/data_plane_difference.ts";
import { type DriftFound, type DriftSubject, DriftWatch } from "../netfilter/drift_watch.ts";
import { RemovalRun } from "../netfilter/foreign/removal_run.ts";
import type { RuleBackendDependencies } from "../netfilter/rule_backend.ts";
import type { VerificationSchedule } from "../netfilter/verification_schedule.ts";
import { DIRECTIONS, type Part } from "./policy_layout.ts";
import type { PolicyGroup, PolicyItem, PolicyTarget } from "./policy_target.ts";
import { RefusedParts } from "./refused_parts.ts";

/** The settings of a data plane. */
export interface PolicyPlaneOptions {
  readonly family: IpFamily;
  /** Longest time between two looks for what a flush takes along, milliseconds. */
  readonly syncPeriodMs: number;
}

/** The log messages about drift, the same for every tool. */
const DRIFT_TEXTS = {
  lost: "Another program removed rules of NetworkPolicy; repairing",
  changed: "Another program removed or changed rules of NetworkPolicy; repairing",
  failed: "Cannot check the rules of NetworkPolicy; trying again",
} as const;

/** A target, and the engine that keeps it. */
interface Rules<Each extends PolicyTarget> {
  readonly target: Each;
  readonly engine: Reconciler<PolicyGroup, PolicyItem, Part>;
}

/** Enforces NetworkPolicy in one IP family, by rules that the kernel applies. */
export abstract class PolicyPlane<Each extends PolicyTarget = PolicyTarget>
  implements DriftSubject, AsyncDisposable {
  abstract readonly tool: "nftables" | "iptables";
  abstract readonly pauseMs: number;
  readonly family: IpFamily;
  protected readonly dependencies: RuleBackendDependencies;
  protected readonly refused: RefusedParts;
  readonly #schedule: VerificationSchedule;
  /** Serializes syncs, checks of the kernel and repairs. */
  protected readonly turns = new OneAtATime();
  readonly #drift: DriftWatch;
  /** Absent before the start. */
  #rules: Rules<Each> | undefined;
  #plan: PolicyPlan | undefined;
  /** Syncs that were asked for and are not done: the plan may be newer than the rules. */
  #pendingSyncs = 0;
  /** Whether the plan is being changed, so that it may be half made. */
  #isPlanChanging = false;
  #hasFailed = false;

  constructor(
    dependencies: RuleBackendDependencies,
    family: IpFamily,
    schedule: VerificationSchedule,
  ) {
    this.family = family;
    this.dependencies = dependencies;
    this.refused = new RefusedParts(dependencies.clock);
    this.#schedule = schedule;
    const watched = { ...dependencies, schedule, subject: this, turns: this.turns };
    this.#drift = new DriftWatch(watched, DRIFT_TEXTS);
  }

  /** Throws if the tool cannot be used on this machine. */
  protected abstract prepare(): Promise<void>;
  /** Makes a target, for the rules or for a comparison. Needs no start. */
  protected abstract createTarget(): Each | Promise<Each>;
  /** The location of the rules, as text for users. */
  abstract get summary(): string;
  /** Removes every rule that this data plane ever wrote. */
  protected abstract remove(run: RemovalRun): Promise<void>;
  /** Reads the packets that were denied in a direction; `undefined` = they cannot be read. */
  protected abstract deniedIn(direction: Direction): Promise<number | undefined>;
  abstract look(): ReturnType<DriftSubject["look"]>;
  /** The plan in the tool's own language, in pieces. The same plan gives the same bytes. Pure. */
  abstract render(plan: PolicyPlan): Iterable<string>;

  protected get target(): Each | undefined {
    return this.#rules?.target;
  }

  get isKnown(): boolean {
    return this.#rules?.engine.isKnown === true;
  }

  get isPending(): boolean {
    return this.#isPlanChanging || this.#pendingSyncs > 0 || this.#hasFailed;
  }

  /** Rules of an earlier run stay in effect until the first sync, which reads them. */
  async start(): Promise<void> {
    await this.prepare();
    this.#rules = await this.#createRules();
    this.#drift.start();
  }

  planChanges(): void {
    this.#isPlanChanging = true;
  }

  async sync(plan: PolicyPlan, changes: PolicyPlanChanges): Promise<SyncReport<PolicyKey>> {
    this.#isPlanChanging = false;
    this.#pendingSyncs++;
    try {
      return await this.turns.run(() => this.#sync(plan, changes));
    } finally {
      this.#pendingSyncs--;
    }
  }

  recheck(): void {
    this.#drift.recheck();
  }

  /** Also stops the watch, which would otherwise restore the removed rules. */
  async cleanup(): Promise<CleanupReport> {
    await this.#drift.stop();
    return await this.turns.run(() => this.#remove({ dryRun: false }));
  }

  previewCleanup(): Promise<CleanupReport> {
    return this.#remove({ dryRun: true });
  }

  /** The kernel keeps open connections, whether this process runs or not. */
  async drain(): Promise<void> {
    await this.#drift.stop();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#drift.stop();
  }

  /** Returns the differences between the machine and a plan, except for refused parts. */
  compare(plan: PolicyPlan): Promise<readonly DataPlaneDifference[]> {
    return this.turns.run(async () => {
      const { engine, target } = await this.#createRules();
      target.want(plan);
      return target.differences(await engine.compare());
    });
  }

  repair(): Promise<Readonly<Record<string, number>>> {
    return this.turns.run(async () => {
      if (this.isPending) return {};
      await this.verify();
      const { reads: _, ...operations } = this.target?.takeCounts() ?? { reads: 0 };
      return operations;
    });
  }

  async deniedPackets(): Promise<DeniedPackets> {
    const counts: { -readonly [Each in Direction]?: number } = {};
    for (const direction of DIRECTIONS) {
      const packets = await this.deniedIn(direction);
      if (packets !== undefined) counts[direction] = packets;
    }
    return counts;
  }

  /** For the watch. Changes of a pending sync are not drift. */
  async verify(): Promise<DriftFound> {
    if (this.#plan === undefined || this.#rules === undefined) return { counts: {}, fields: {} };
    const { engine, target } = this.#rules;
    target.want(this.#plan);
    const found = target.differences(await engine.verify());
    if (this.#isPlanChanging || this.#pendingSyncs > 0) {
      // The plan may have changed meanwhile, and the next sync knows only the changed keys.
      engine.forget();
      return { counts: {}, fields: {} };
    }
    const counts = { chain: 0, rule: 0, set: 0 };
    for (const { object } of found) counts[kindOf(object)]++;
    return { counts, fields: { ...counts, ...(found[0] && { first: found[0].name }) } };
  }

  async #sync(plan: PolicyPlan, changes: PolicyPlanChanges): Promise<SyncReport<PolicyKey>> {
    if (this.#rules === undefined) {
      throw new Error(`Cannot sync NetworkPolicy by ${this.tool}: start() has not succeeded`);
    }
    const { engine, target } = this.#rules;
    if (changes.full) engine.forget();
    const wasKnown = engine.isKnown;
    const { reads } = target;
    this.#plan = plan;
    this.#hasFailed = true;
    target.takeCounts();
    target.want(plan, changes);
    try {
      await engine.sync();
    } catch (cause) {
      throw new SyncFailure(messageOf(cause), { full: !wasKnown, cause });
    }
    this.#hasFailed = false;
    this.#schedule.expect(this.dependencies.clock.now(), 0);
    const operations = target.takeCounts();
    return { full: target.reads > reads, operations, quarantined: target.quarantined };
  }

  async #createRules(): Promise<Rules<Each>> {
    const target = await this.createTarget();
    return { target, engine: new Reconciler(this.dependencies, target) };
  }

  async #remove(options: { readonly dryRun: boolean }): Promise<CleanupReport> {
    const run = new RemovalRun(this.dependencies, options);
    await this.remove(run);
    if (!options.dryRun) this.#rules?.engine.forget();
    return run.report();
  }
}

/** The kinds of objects of the metric of drift. */
function kindOf(object: string): "chain" | "rule" | "set" {
  if (object === "chain" || object === "table") return "chain";
  return object === "rule" ? "rule" : "set";
}
