import type { CleanupReport } from "../../lib/engine/data_plane.ts";
import { SyncFailure } from "../../lib/engine/sync_failure.ts";
import { messageOf } from "../../lib/log/message_of.ts";
import type { IpFamily } from "../../lib/net/ip_address.ts";
import { OneAtATime } from "../../lib/net/one_at_a_time.ts";
import {
  type DeniedPackets,
  inspectPolicyPlan,
  type PolicyInspection,
} from "../../lib/policy/inspect_policy_plan.ts";
import type { Direction, PolicyPlan, PolicyPlanChanges } from "../../lib/policy/policy_plan.ts";
import { type DriftFound, type DriftSubject, DriftWatch } from "../netfilter/drift_watch.ts";
import { RemovalRun } from "../netfilter/foreign/removal_run.ts";
import type { RuleBackendDependencies } from "../netfilter/rule_backend.ts";
import type { VerificationSchedule } from "../netfilter/verification_schedule.ts";
import {
  DIRECTIONS,
  POLICY_DRIFT_TEXTS,
  type PolicyDataPlane,
  type PolicyDataPlaneOptions,
  type PolicyDifference,
  type PolicyRepair,
  type PolicySyncReport,
} from "./policy_data_plane.ts";
import type { PolicyRules } from "./policy_rules.ts";
import type { PolicyTarget } from "./policy_target.ts";
import type { WriteCounts } from "./write_counts.ts";

/** The common part of data planes whose rules the kernel applies. */
export abstract class PolicyRulePlane implements PolicyDataPlane, DriftSubject {
  abstract readonly tool: PolicyDataPlane["tool"];
  abstract readonly pauseMs: number;
  readonly family: IpFamily;
  protected readonly dependencies: RuleBackendDependencies;
  readonly #schedule: VerificationSchedule;
  /** Serializes syncs, checks of the kernel and repairs. */
  protected readonly turns = new OneAtATime();
  readonly #drift: DriftWatch;
  #plan: PolicyPlan | undefined;
  #isStarted = false;
  /** Syncs that were asked for and are not done: the plan may be newer than the rules. */
  #pendingSyncs = 0;
  #hasFailed = false;

  constructor(
    dependencies: RuleBackendDependencies,
    { family, schedule }: Pick<PolicyDataPlaneOptions, "family"> & {
      readonly schedule: VerificationSchedule;
    },
  ) {
    this.family = family;
    this.dependencies = dependencies;
    this.#schedule = schedule;
    const watched = { ...dependencies, schedule, subject: this, turns: this.turns };
    this.#drift = new DriftWatch(watched, POLICY_DRIFT_TEXTS);
  }

  /** Reads the machine. Throws if the tool cannot be used on it. */
  protected abstract prepare(): Promise<void>;
  /** The writer; `undefined` = the machine has not been read. */
  protected abstract get writer(): PolicyRules<PolicyTarget> | undefined;
  /** The location of the rules, as text for users. */
  protected abstract get summary(): string;
  /** Removes every rule that this data plane ever wrote. */
  protected abstract remove(run: RemovalRun): Promise<void>;
  /** Reads the packets that were denied in a direction; `undefined` = they cannot be read. */
  protected abstract deniedIn(direction: Direction): Promise<number | undefined>;
  abstract look(): ReturnType<DriftSubject["look"]>;
  abstract render(plan: PolicyPlan): Iterable<string>;

  get isKnown(): boolean {
    return this.writer?.isKnown === true;
  }

  get isPending(): boolean {
    return this.#pendingSyncs > 0 || this.#hasFailed;
  }

  /** Rules of an earlier run stay in effect until the first sync, which reads them. */
  async start(): Promise<void> {
    await this.prepare();
    this.#isStarted = true;
    this.#drift.start();
  }

  async sync(plan: PolicyPlan, changes: PolicyPlanChanges): Promise<PolicySyncReport> {
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

  compare(plan: PolicyPlan): Promise<readonly PolicyDifference[]> {
    return this.turns.run(async () => (await this.#readyWriter()).compare(plan));
  }

  repair(plan: PolicyPlan): Promise<PolicyRepair> {
    return this.turns.run(async () => {
      const writer = await this.#readyWriter();
      try {
        return await writer.repair(plan);
      } finally {
        // The plan may be another one than that of the last sync.
        writer.forget();
        if (this.#plan) this.recheck();
      }
    });
  }

  inspect(): PolicyInspection {
    return inspectPolicyPlan(this.#plan, this.summary);
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
    const [plan, writer] = [this.#plan, this.writer];
    if (plan === undefined || writer === undefined) return { counts: {}, fields: {} };
    const found = await writer.verify(plan);
    if (this.#pendingSyncs > 0) {
      // The plan may have changed meanwhile, and the pending sync knows only the changed keys.
      writer.forget();
      return { counts: {}, fields: {} };
    }
    const counts = { chain: 0, rule: 0, set: 0 };
    for (const { object } of found) counts[kindOf(object)]++;
    return { counts, fields: { ...counts, ...(found[0] && { first: found[0].name }) } };
  }

  async #sync(plan: PolicyPlan, changes: PolicyPlanChanges): Promise<PolicySyncReport> {
    const { writer } = this;
    if (!this.#isStarted || writer === undefined) {
      throw new Error(`Cannot sync NetworkPolicy by ${this.tool}: start() has not succeeded`);
    }
    const operations: WriteCounts = {};
    const wasKnown = writer.isKnown;
    this.#plan = plan;
    this.#hasFailed = true;
    try {
      const full = await writer.write(plan, { changes, counts: operations });
      this.#hasFailed = false;
      this.#schedule.expect(this.dependencies.clock.now(), 0);
      return { full, operations, quarantined: writer.quarantined };
    } catch (cause) {
      throw new SyncFailure(messageOf(cause), { full: changes.full || !wasKnown, cause });
    }
  }

  async #readyWriter(): Promise<PolicyRules<PolicyTarget>> {
    if (this.writer === undefined) await this.prepare();
    return this.writer!;
  }

  async #remove(options: { readonly dryRun: boolean }): Promise<CleanupReport> {
    const run = new RemovalRun(this.dependencies, options);
    await this.remove(run);
    if (!options.dryRun) this.writer?.forget();
    return run.report();
  }
}

/** The kinds of objects of the metric of drift. */
function kindOf(object: string): "chain" | "rule" | "set" {
  if (object === "chain" || object === "table") return "chain";
  return object === "rule" ? "rule" : "set";
}
