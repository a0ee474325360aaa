/**
 * NetworkPolicy by one table of nftables in each family. The table stays when the process ends, and the
 * first sync of the next one takes it over in one transaction.
 *
 * @module
 */
import type { RuleBackendDependencies } from "../../netfilter/rule_backend.ts";
import type { CleanupReport } from "../../../lib/controller/data_plane.ts";
import { SyncFailure } from "../../../lib/controller/sync_failure.ts";
import { messageOf } from "../../../lib/log/message_of.ts";
import type { IpFamily } from "../../../lib/net/ip_address.ts";
import { OneAtATime } from "../../../lib/os/one_at_a_time.ts";
import {
  inspectPolicyPlan,
  type PolicyInspection,
} from "../../../lib/policy/inspect_policy_plan.ts";
import type { Connection } from "../../../lib/policy/judge_connection.ts";
import type { PolicyPlan, PolicyPlanChanges } from "../../../lib/policy/policy_plan.ts";
import { type DriftFound, type DriftSubject, DriftWatch } from "../../netfilter/drift_watch.ts";
import { RemovalRun } from "../../netfilter/foreign/removal_run.ts";
import { atOnce, inSteps } from "../../netfilter/in_steps.ts";
import { NftError } from "../../netfilter/nft/nft_error.ts";
import { deletionText } from "../../netfilter/nft/nft_objects.ts";
import { NftRunner } from "../../netfilter/nft/nft_runner.ts";
import { VerificationSchedule } from "../../netfilter/verification_schedule.ts";
import {
  POLICY_DRIFT_TEXTS,
  type PolicyDataPlane,
  type PolicyDataPlaneOptions,
  type PolicyDifference,
  type PolicyRepair,
  type PolicySyncReport,
  type PolicyWalk,
} from "../policy_data_plane.ts";
import { policyTable } from "./layout.ts";
import { renderPolicies } from "./diff_reading.ts";
import { tableDifferences } from "./table_differences.ts";
import { PolicyTableWriter, PolicyWriteFigures } from "./table_writer.ts";
import { walkPolicies } from "./walk.ts";
import { wantedTable } from "./wanted_table.ts";

/** A flush is to be repaired within seconds, however long the sync period is. */
const LONGEST_PAUSE_MS = 5_000;

/** Makes the data plane of one IP family. Runs nothing before it is started. */
export function createNftablesPolicyDataPlane(
  dependencies: RuleBackendDependencies,
  options: PolicyDataPlaneOptions,
): PolicyDataPlane {
  return new NftablesPolicyDataPlane(dependencies, options);
}

class NftablesPolicyDataPlane implements PolicyDataPlane, DriftSubject {
  readonly tool = "nftables";
  readonly family: IpFamily;
  readonly pauseMs: number;
  readonly #dependencies: RuleBackendDependencies;
  readonly #turns = new OneAtATime();
  readonly #runner: NftRunner;
  readonly #writer: PolicyTableWriter;
  readonly #schedule: VerificationSchedule;
  readonly #drift: DriftWatch;
  #plan: PolicyPlan | undefined;
  #isStarted = false;
  /** Syncs that were asked for and are not done: the plan may be newer than the table. */
  #pendingSyncs = 0;
  #hasFailed = false;

  constructor(
    dependencies: RuleBackendDependencies,
    { family, syncPeriodMs }: PolicyDataPlaneOptions,
  ) {
    this.family = family;
    this.pauseMs = Math.min(syncPeriodMs, LONGEST_PAUSE_MS);
    this.#dependencies = dependencies;
    const { clock, commands, logger, onDrift, random } = dependencies;
    this.#runner = new NftRunner({ commands }, policyTable(family));
    this.#writer = new PolicyTableWriter({ clock, runner: this.#runner });
    const schedule = new VerificationSchedule(random, { shortestMs: 2 * this.pauseMs });
    this.#schedule = schedule;
    const turns = this.#turns;
    const watched = { clock, logger, onDrift, schedule, subject: this, turns };
    this.#drift = new DriftWatch(watched, POLICY_DRIFT_TEXTS);
  }

  get isKnown(): boolean {
    return this.#writer.isKnown;
  }

  get isPending(): boolean {
    return this.#pendingSyncs > 0 || this.#hasFailed;
  }

  /** The table of an earlier run stays in force until the first sync, which reads it. */
  async start(): Promise<void> {
    // Fails at once where nft is missing or may not be used.
    await this.#runner.chains();
    this.#isStarted = true;
    this.#drift.start();
  }

  async sync(plan: PolicyPlan, changes: PolicyPlanChanges): Promise<PolicySyncReport> {
    this.#pendingSyncs++;
    try {
      return await this.#turns.run(() => this.#sync(plan, changes));
    } finally {
      this.#pendingSyncs--;
    }
  }

  recheck(): void {
    this.#drift.recheck();
  }

  /** Ends the watch too, which would write again what it misses. */
  async cleanup(): Promise<CleanupReport> {
    await this.#drift.stop();
    return await this.#turns.run(() => this.#remove(false));
  }

  previewCleanup(): Promise<CleanupReport> {
    return this.#remove(true);
  }

  /** Open connections are the kernel's: they go on whether this process does or not. */
  async drain(): Promise<void> {
    await this.#drift.stop();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#drift.stop();
  }

  render(plan: PolicyPlan): Iterable<string> {
    return renderPolicies(plan);
  }

  walk(plan: PolicyPlan, connection: Connection): PolicyWalk {
    return walkPolicies(atOnce(wantedTable(plan)), connection);
  }

  compare(plan: PolicyPlan): Promise<readonly PolicyDifference[]> {
    return this.#turns.run(() => this.#compare(plan));
  }

  repair(plan: PolicyPlan): Promise<PolicyRepair> {
    return this.#turns.run(async () => {
      const figures = new PolicyWriteFigures();
      const found = await this.#compare(plan);
      if (found.length > 0) await this.#writer.write({ plan, changes: undefined, figures });
      const left = found.length > 0 ? await this.#compare(plan) : [];
      return { found, left, operations: figures.operations };
    });
  }

  inspect(): PolicyInspection {
    const { family, name } = policyTable(this.family);
    return inspectPolicyPlan(this.#plan, `table ${family} ${name} of nftables`);
  }

  /** For the watch. */
  async look() {
    const missing = await this.#turns.run(() => this.#writer.missingChains());
    return missing.length > 0 ? { count: missing.length, chain: missing[0] } : undefined;
  }

  /** For the watch. What a sync that waits brings is no drift: it compares everything. */
  async verify(): Promise<DriftFound> {
    const counts = { chain: 0, rule: 0, set: 0 };
    const plan = this.#plan;
    if (plan === undefined) return { counts, fields: {} };
    const found = await this.#compare(plan);
    if (this.#pendingSyncs > 0) {
      this.#writer.forget();
      return { counts, fields: {} };
    }
    for (const { object } of found) counts[kindOf(object)]++;
    if (found.length > 0) {
      const figures = new PolicyWriteFigures();
      await this.#writer.write({ plan, changes: undefined, figures });
      if (this.#pendingSyncs > 0) this.#writer.forget();
    }
    const [first] = found;
    return { counts, fields: { ...counts, ...(first && { first: first.name }) } };
  }

  async #sync(plan: PolicyPlan, changes: PolicyPlanChanges): Promise<PolicySyncReport> {
    if (!this.#isStarted) {
      throw new Error("Cannot sync the table of NetworkPolicy: start() has not succeeded");
    }
    const { clock } = this.#dependencies;
    const figures = new PolicyWriteFigures();
    const wasKnown = this.#writer.isKnown;
    this.#plan = plan;
    this.#hasFailed = true;
    try {
      const full = await this.#writer.write({ plan, changes, figures });
      this.#hasFailed = false;
      this.#schedule.expect(clock.now(), 0);
      const { operations } = figures;
      return { full, operations, quarantined: this.#writer.quarantined };
    } catch (cause) {
      throw new SyncFailure(messageOf(cause), { full: changes.full || !wasKnown, cause });
    }
  }

  async #compare(plan: PolicyPlan) {
    const { clock } = this.#dependencies;
    const table = policyTable(this.family);
    const wanted = await inSteps({ clock }, wantedTable(plan, this.#writer.leftOut));
    const code = await this.#runner.ruleCode(wanted, wanted.chains.values());
    const found = await this.#runner.readWithCode();
    return await inSteps({ clock }, tableDifferences({ table, wanted, code, found }));
  }

  /** Takes the table away, which is all that this data plane ever wrote. */
  async #remove(dryRun: boolean): Promise<CleanupReport> {
    const run = new RemovalRun(this.#dependencies, { dryRun });
    const table = policyTable(this.family);
    const name = `table ${table.family} ${table.name}`;
    try {
      if (await this.#runner.isThere()) {
        await run.do(name, {
          command: ["nft", "-f", "-"],
          input: () => [deletionText(table)],
          removes: [`${name} (nftables)`],
        });
        this.#writer.forget();
      }
    } catch (error) {
      if (!(error instanceof NftError)) throw error;
      // Without the program no table was ever written here.
      if (!/ENOENT|not found/i.test(messageOf(error))) run.unseen(name, error.message);
    }
    return run.report();
  }
}

function kindOf(object: string): "chain" | "rule" | "set" {
  if (object === "chain" || object === "table") return "chain";
  return object === "set" || object === "map" ? "set" : "rule";
}
