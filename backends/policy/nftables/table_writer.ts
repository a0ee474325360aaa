/**
 * Applies plans to the table and remembers its content, except after a failure. A normal sync lists
 * nothing.
 *
 * @module
 */
import type { Quarantined } from "../../../lib/controller/data_plane.ts";
import type { Clock } from "../../../lib/os/clock.ts";
import type { PolicyKey, PolicyPlan, PolicyPlanChanges } from "../../../lib/policy/policy_plan.ts";
import { inSteps } from "../../netfilter/in_steps.ts";
import { ChainHandles } from "../../netfilter/nft/chain_handles.ts";
import { NftError } from "../../netfilter/nft/nft_error.ts";
import type { NftRunner } from "../../netfilter/nft/nft_runner.ts";
import { EMPTY_TABLE, type TableReading } from "../../netfilter/nft/table_listing.ts";
import type { PolicyDifference } from "../policy_data_plane.ts";
import { PolicyQuarantine } from "../policy_quarantine.ts";
import type { PolicyRuleWriter } from "../policy_rule_plane.ts";
import { addCounts, type WriteCounts } from "../write_counts.ts";
import { AppliedPolicies, type TableDifference } from "./applied_policies.ts";
import { diffChanges } from "./diff_changes.ts";
import { diffReading } from "./diff_reading.ts";
import { policyTable } from "./layout.ts";
import { tableDifferences } from "./table_differences.ts";
import { type Part, wantedTable } from "./wanted_table.ts";

interface TableWriterDependencies {
  readonly clock: Clock;
  readonly runner: Pick<NftRunner, "chains" | "read" | "readWithCode" | "ruleCode" | "write">;
}

/** Transactions that may be refused in one sync; each names every line that the kernel refused. */
const MAX_REFUSALS = 8;
/** Number of failed readings in a row after which the table is replaced without a reading. */
const FAILED_READS = 3;

/** The input of an attempt, from one refusal to the next. */
interface Attempt {
  readonly plan: PolicyPlan;
  readonly changes: PolicyPlanChanges | undefined;
  readonly counts: WriteCounts;
}

/** Writes the table of one family. */
export class PolicyTableWriter implements PolicyRuleWriter {
  readonly #dependencies: TableWriterDependencies;
  readonly #handles = new ChainHandles();
  readonly #quarantine: PolicyQuarantine;
  readonly #applied = new AppliedPolicies();
  #isKnown = false;
  #isDamaged = false;
  #failedReads = 0;

  constructor(dependencies: TableWriterDependencies) {
    this.#dependencies = dependencies;
    this.#quarantine = new PolicyQuarantine(dependencies);
  }

  get isKnown(): boolean {
    return this.#isKnown;
  }

  get quarantined(): readonly Quarantined<PolicyKey>[] {
    return this.#quarantine.report(this.#applied.lists.values().map(({ leftOut }) => leftOut));
  }

  forget(): void {
    this.#isKnown = false;
  }

  /** Returns own chains that another program removed or recreated. Lists no rules and no elements. */
  missingChains(): Promise<readonly string[]> {
    return this.#handles.missing(this.#dependencies.runner, this.#applied.chains);
  }

  /**
   * Writes one transaction if anything differs. After a refusal, the writer first reads the table, which
   * may differ from the known one, and then replaces it. It blames a policy only for a refusal in a new
   * table, and writes the other policies. Throws an NftError if these cannot be written either. Returns
   * whether everything was compared.
   */
  async write(plan: PolicyPlan, options: Omit<Attempt, "plan">): Promise<boolean> {
    const attempt: Attempt = { plan, ...options };
    this.#isDamaged = false;
    for (let refusals = 1;; refusals++) {
      const isPartial = this.#isKnown && attempt.changes?.full === false;
      const now = this.#dependencies.clock.now();
      let difference: TableDifference | undefined;
      try {
        difference = await this.#diff(attempt, { isPartial, now });
        await this.#apply(difference, attempt.counts);
        this.#quarantine.settle(now);
        return !isPartial;
      } catch (error) {
        this.#isKnown = false;
        const isRefused = error instanceof NftError && error.kind === "refused";
        if (!isRefused || refusals >= MAX_REFUSALS) throw error;
        if (isPartial) continue;
        if (!this.#isDamaged) this.#isDamaged = true;
        else if (!this.#leaveOut(error, difference)) throw error;
        // No policy is to blame, so the existing table is kept.
        else this.#isDamaged = false;
      }
    }
  }

  async compare(plan: PolicyPlan): Promise<readonly PolicyDifference[]> {
    const { runner } = this.#dependencies;
    const table = policyTable(plan.family);
    const steps = wantedTable(plan, this.#quarantine.held);
    const wanted = await inSteps(this.#dependencies, steps);
    const code = await runner.ruleCode(wanted, wanted.chains.values());
    const found = await runner.readWithCode();
    return await inSteps(this.#dependencies, tableDifferences({ table, wanted, code, found }));
  }

  async #diff(
    { plan, changes, counts }: Attempt,
    { isPartial, now }: { readonly isPartial: boolean; readonly now: number },
  ): Promise<TableDifference> {
    const applied = this.#applied;
    const refused = this.#quarantine.waitingAt(now);
    const steps = isPartial && changes
      ? diffChanges(plan, changes, { applied, refused })
      : diffReading(plan, {
        reading: await this.#read(counts),
        isDamaged: this.#isDamaged,
        refused,
      });
    return await inSteps(this.#dependencies, steps);
  }

  /** Reads the table. After repeated failures, has it replaced unread: only a reading allows less. */
  async #read(counts: WriteCounts): Promise<TableReading | undefined> {
    addCounts(counts, { reads: 1 });
    this.#handles.forgetAll();
    try {
      const reading = await this.#dependencies.runner.read();
      this.#failedReads = 0;
      return reading;
    } catch (error) {
      const isUnclear = error instanceof NftError && error.kind === "unclear";
      if (!isUnclear || ++this.#failedReads < FAILED_READS) throw error;
      this.#isDamaged = true;
      return EMPTY_TABLE;
    }
  }

  async #apply(difference: TableDifference, counts: WriteCounts): Promise<void> {
    const { transaction, applied } = difference;
    if (!transaction.isEmpty) {
      addCounts(counts, { transactions: 1 });
      await this.#dependencies.runner.write(transaction);
      const { lineCount, characters, elements } = transaction;
      const chains = applied.chains.length;
      addCounts(counts, { lines: lineCount, bytes: characters, elements, chains });
    }
    this.#handles.forget([...applied.chains, ...this.#applied.idle]);
    this.#applied.confirm(applied);
    this.#isKnown = true;
  }

  /** Whether the lines that were refused belong to policies, which are in quarantine now. */
  #leaveOut({ lines }: NftError, difference: TableDifference | undefined): boolean {
    const { transaction } = difference ?? {};
    const texts = transaction?.toLines();
    const reasons = new Map<Part, string>();
    for (const { number, reason } of lines) {
      const part = transaction?.ownerOf(number);
      const line = texts?.[number - 1]?.trim();
      if (part !== undefined) reasons.set(part, `The kernel refused "${line}": ${reason}`);
    }
    for (const [part, reason] of reasons) this.#quarantine.refuse(part, reason);
    return reasons.size > 0;
  }
}
