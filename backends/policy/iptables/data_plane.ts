/**
 * NetworkPolicy by rules of iptables and sets of ipset, for hosts without nft. Both stay when the process
 * ends, and the first sync of the next one reads them and writes the difference.
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
import { removeChains } from "../../netfilter/foreign/remove_iptables.ts";
import { destroySets } from "../../netfilter/ipset/destroy_sets.ts";
import { listSets } from "../../netfilter/ipset/ipset_runner.ts";
import { CanarySchedule } from "../../netfilter/iptables/canary_schedule.ts";
import { IPTABLES_RULE_SETS } from "../../netfilter/iptables/iptables_rule_set.ts";
import { IptablesRunner } from "../../netfilter/iptables/iptables_runner.ts";
import { chooseIptables } from "../../netfilter/iptables/iptables_variant.ts";
import { isSameRule } from "../../netfilter/iptables/rule_normal_form.ts";
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
import { BASE_JUMPS, isPolicyChain } from "./base_chains.ts";
import { isPolicySet } from "./layout.ts";
import { PolicyWriter, type WriteCounts } from "./policy_writer.ts";
import { renderPolicies } from "./render.ts";
import { walkPolicies } from "./walk.ts";

/** Makes the data plane of one IP family. Runs nothing before it is started. */
export function createIptablesPolicyDataPlane(
  dependencies: RuleBackendDependencies,
  options: PolicyDataPlaneOptions,
): PolicyDataPlane {
  return new IptablesPolicyDataPlane(dependencies, options);
}

/** What `start()` found. */
interface Machine {
  readonly summary: string;
  readonly runner: IptablesRunner;
  readonly writer: PolicyWriter;
}

class IptablesPolicyDataPlane implements PolicyDataPlane, DriftSubject {
  readonly tool = "iptables";
  readonly family: IpFamily;
  readonly #dependencies: RuleBackendDependencies;
  readonly #turns = new OneAtATime();
  readonly #looks: CanarySchedule;
  readonly #schedule: VerificationSchedule;
  readonly #drift: DriftWatch;
  #machine: Machine | undefined;
  #plan: PolicyPlan | undefined;
  /** Syncs that were asked for and are not done: the plan may be newer than the rules. */
  #pendingSyncs = 0;
  #hasFailed = false;

  constructor(
    dependencies: RuleBackendDependencies,
    { family, syncPeriodMs }: PolicyDataPlaneOptions,
  ) {
    this.family = family;
    this.#dependencies = dependencies;
    this.#looks = new CanarySchedule(syncPeriodMs);
    const { clock, logger, onDrift, random } = dependencies;
    const schedule = new VerificationSchedule(random);
    this.#schedule = schedule;
    const watched = { clock, logger, onDrift, schedule, subject: this, turns: this.#turns };
    this.#drift = new DriftWatch(watched, POLICY_DRIFT_TEXTS);
  }

  get isKnown(): boolean {
    return this.#machine?.writer.isKnown === true;
  }

  get isPending(): boolean {
    return this.#pendingSyncs > 0 || this.#hasFailed;
  }

  get pauseMs(): number {
    return this.#looks.pauseMs;
  }

  /** Rules and sets of an earlier run stay in force until the first sync, which reads them. */
  async start(): Promise<void> {
    this.#machine = await this.#open();
    const { logger } = this.#dependencies;
    logger.info("Chose iptables for NetworkPolicy", { summary: this.#machine.summary });
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

  cleanup(): Promise<CleanupReport> {
    return this.#turns.run(() => this.#remove(false));
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
    return walkPolicies(plan, connection);
  }

  compare(plan: PolicyPlan): Promise<readonly PolicyDifference[]> {
    return this.#turns.run(async () => await (await this.#writer()).compare(plan));
  }

  repair(plan: PolicyPlan): Promise<PolicyRepair> {
    return this.#turns.run(async () => {
      const [writer, counts]: [PolicyWriter, WriteCounts] = [await this.#writer(), {}];
      const found = await writer.compare(plan);
      if (found.length > 0) await writer.write(plan, { changes: undefined, counts });
      const left = found.length > 0 ? await writer.compare(plan) : [];
      return { found, left, operations: counts };
    });
  }

  inspect(): PolicyInspection {
    return inspectPolicyPlan(this.#plan, this.#machine?.summary ?? "not started");
  }

  /** For the watch: a flush takes the jumps along, and one that stands first later passes by ours. */
  async look() {
    const { clock } = this.#dependencies;
    const startedAt = clock.now();
    for (const { from, rule } of BASE_JUMPS) {
      const [first = ""] = await this.#machine?.runner.rulesOf("filter", from) ?? [];
      if (isSameRule(rule, first)) continue;
      this.#looks.lost();
      return { chain: from, first };
    }
    this.#looks.looked(clock.now() - startedAt);
    return undefined;
  }

  /** For the watch. What a sync that waits brings is no drift: it compares everything. */
  async verify(): Promise<DriftFound> {
    const [plan, writer] = [this.#plan, this.#machine?.writer];
    if (plan === undefined || writer === undefined) return { counts: {}, fields: {} };
    const found = await writer.compare(plan);
    if (this.#pendingSyncs > 0) {
      writer.forget();
      return { counts: {}, fields: {} };
    }
    await writer.write(plan, { changes: undefined, counts: {} });
    // The plan may have changed meanwhile, and the sync that waits knows only what changed.
    if (this.#pendingSyncs > 0) writer.forget();
    const counts = { chain: 0, rule: 0, set: 0 };
    for (const { object } of found) {
      counts[object === "chain" || object === "rule" ? object : "set"]++;
    }
    return { counts, fields: { ...counts, first: found[0]?.name } };
  }

  async #sync(plan: PolicyPlan, changes: PolicyPlanChanges): Promise<PolicySyncReport> {
    if (this.#machine === undefined) {
      throw new Error("Cannot sync rules of NetworkPolicy: start() has not succeeded");
    }
    const { writer } = this.#machine;
    const counts: WriteCounts = {};
    const wasKnown = writer.isKnown;
    this.#plan = plan;
    this.#hasFailed = true;
    try {
      const full = await writer.write(plan, { changes, counts });
      this.#hasFailed = false;
      this.#schedule.expect(this.#dependencies.clock.now(), 0);
      return { full, operations: counts, quarantined: writer.quarantined };
    } catch (cause) {
      throw new SyncFailure(messageOf(cause), { full: changes.full || !wasKnown, cause });
    }
  }

  async #open(): Promise<Machine> {
    const { clock, commands } = this.#dependencies;
    const { family } = this;
    const { programs, ...choice } = await chooseIptables({ commands }, { family });
    if (programs === undefined) {
      const reason = "problem" in choice ? choice.problem : "";
      throw new Error(`Cannot enforce NetworkPolicy for ${family} by iptables: ${reason}`);
    }
    const sets = await listSets(commands);
    if (sets.state !== "seen") {
      throw new Error(`Cannot enforce NetworkPolicy for ${family} by ipset: ${sets.reason}`);
    }
    const runner = new IptablesRunner({ commands }, programs);
    const writer = new PolicyWriter({ clock, commands, runner, family });
    const summary = `rules by ${programs.restore} ${programs.version}, sets by ipset`;
    return { summary, runner, writer };
  }

  async #writer(): Promise<PolicyWriter> {
    return (this.#machine ?? await this.#open()).writer;
  }

  /** Rules go first, since they hold the sets. */
  async #remove(dryRun: boolean): Promise<CleanupReport> {
    const run = new RemovalRun(this.#dependencies, { dryRun });
    const isOurs = (table: string, chain: string) => table === "filter" && isPolicyChain(chain);
    for (const world of IPTABLES_RULE_SETS.filter(({ family }) => family === this.family)) {
      await removeChains(this.#dependencies, {
        world,
        whose: "kube-relay's",
        keepJump: (table, { from, to }) => isOurs(table, to) && !isOurs(table, from),
        choose: () => isOurs,
        run,
      });
    }
    const sets = await listSets(this.#dependencies.commands);
    if (sets.state === "refused") run.unseen("sets of ipset", sets.reason);
    if (sets.state === "seen") {
      await destroySets(run, sets.value.filter((name) => isPolicySet(name, this.family)));
    }
    this.#machine?.writer.forget();
    return run.report();
  }
}
