/**
 * Brings the table to a plan, and knows what it holds: known is what was applied without a failure.
 * No normal sync lists anything.
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
import { PolicyQuarantine, type RefusedParts } from "../policy_quarantine.ts";
import { AppliedPolicies, type TableDifference } from "./applied_policies.ts";
import { diffChanges } from "./diff_changes.ts";
import { diffReading } from "./diff_reading.ts";
import type { Part } from "./wanted_table.ts";

/** The dependencies of the writer. */
interface TableWriterDependencies {
  readonly clock: Clock;
  readonly runner: Pick<NftRunner, "chains" | "read" | "write">;
}

/** Counts of one sync, or of one repair. */
export class PolicyWriteFigures {
  readonly #counts = { reads: 0, transactions: 0, lines: 0, bytes: 0, elements: 0, chains: 0 };

  count(name: "reads" | "transactions"): void {
    this.#counts[name]++;
  }

  /** A transaction was accepted. */
  add({ transaction: { lines, elements }, applied }: TableDifference): void {
    for (const line of lines) this.#counts.bytes += line.length + 1;
    this.#counts.lines += lines.length;
    this.#counts.elements += elements;
    this.#counts.chains += applied.chains.length;
  }

  /** For the report of a sync; zero ones left out. */
  get operations(): Record<string, number> {
    return Object.fromEntries(Object.entries(this.#counts).filter(([, count]) => count !== 0));
  }
}

/** Transactions that may be refused in one sync; each names every line that the kernel refused. */
const MAX_REFUSALS = 8;
/** Readings that fail one after the other before the table is replaced unseen. */
const FAILED_READS = 3;

/** What is tried, from one refusal to the next. */
interface Attempt {
  readonly plan: PolicyPlan;
  readonly changes: PolicyPlanChanges | undefined;
  readonly figures: PolicyWriteFigures;
}

/** Writes the table of one family. One call is in flight at most. */
export class PolicyTableWriter {
  readonly #dependencies: TableWriterDependencies;
  readonly #handles = new ChainHandles();
  readonly #quarantine: PolicyQuarantine;
  readonly #applied = new AppliedPolicies();
  #isKnown = false;
  #isSpoilt = false;
  #failedReads = 0;

  constructor(dependencies: TableWriterDependencies) {
    this.#dependencies = dependencies;
    this.#quarantine = new PolicyQuarantine(dependencies);
  }

  /** Whether what the kernel holds is known; otherwise the next write reads it first. */
  get isKnown(): boolean {
    return this.#isKnown;
  }

  /** The parts that the last write left out. */
  get leftOut(): RefusedParts {
    return this.#quarantine.held;
  }

  get quarantined(): readonly Quarantined<PolicyKey>[] {
    return this.#quarantine.report(this.#applied.lists.values().map(({ leftOut }) => leftOut));
  }

  /** Another program may have changed the table. */
  forget(): void {
    this.#isKnown = false;
  }

  /** Chains of ours that another program removed, or made again. Lists no rules and no elements. */
  missingChains(): Promise<readonly string[]> {
    return this.#handles.missing(this.#dependencies.runner, this.#applied.chains);
  }

  /**
   * One transaction, if anything differs. What the kernel refuses of some policies keeps no other one
   * waiting. First the table is read, since it may not be what it was taken for, then it is replaced;
   * only what is refused in a new table too is a policy's. Throws an NftError when not even the rest
   * could be written. Returns whether everything was compared.
   */
  async write(attempt: Attempt): Promise<boolean> {
    this.#isSpoilt = false;
    for (let refusals = 1;; refusals++) {
      const isPartial = this.#isKnown && attempt.changes?.full === false;
      const now = this.#dependencies.clock.now();
      let difference: TableDifference | undefined;
      try {
        difference = await this.#diff(attempt, { isPartial, now });
        await this.#apply(difference, attempt.figures);
        this.#quarantine.settle(now);
        return !isPartial;
      } catch (error) {
        this.#isKnown = false;
        const isRefused = error instanceof NftError && error.kind === "refused";
        if (!isRefused || refusals >= MAX_REFUSALS) throw error;
        if (isPartial) continue;
        if (!this.#isSpoilt) this.#isSpoilt = true;
        else if (!this.#leaveOut(error, difference)) throw error;
        // There was nothing else to blame: the table that is there is kept after all.
        else this.#isSpoilt = false;
      }
    }
  }

  async #diff(
    { plan, changes, figures }: Attempt,
    { isPartial, now }: { readonly isPartial: boolean; readonly now: number },
  ): Promise<TableDifference> {
    const applied = this.#applied;
    const refused = this.#quarantine.waitingAt(now);
    const steps = isPartial && changes
      ? diffChanges(plan, changes, { applied, refused })
      : diffReading(plan, {
        reading: await this.#read(figures),
        isSpoilt: this.#isSpoilt,
        refused,
      });
    return await inSteps(this.#dependencies, steps);
  }

  /** Until a table that cannot be read is replaced, nothing else could be written either. */
  async #read(figures: PolicyWriteFigures): Promise<TableReading | undefined> {
    figures.count("reads");
    this.#handles.forgetAll();
    try {
      const reading = await this.#dependencies.runner.read();
      this.#failedReads = 0;
      return reading;
    } catch (error) {
      const isUnclear = error instanceof NftError && error.kind === "unclear";
      if (!isUnclear || ++this.#failedReads < FAILED_READS) throw error;
      this.#isSpoilt = true;
      return EMPTY_TABLE;
    }
  }

  async #apply(difference: TableDifference, figures: PolicyWriteFigures): Promise<void> {
    const { transaction, applied } = difference;
    if (!transaction.isEmpty) {
      figures.count("transactions");
      await this.#dependencies.runner.write(transaction);
      figures.add(difference);
    }
    this.#handles.forget([...applied.chains, ...this.#applied.idle]);
    this.#applied.confirm(applied);
    this.#isKnown = true;
  }

  /** Whether the lines that were refused belong to policies, which are in quarantine now. */
  #leaveOut({ lines }: NftError, difference: TableDifference | undefined): boolean {
    const { transaction } = difference ?? {};
    const reasons = new Map<Part, string>();
    for (const { number, reason } of lines) {
      const part = transaction?.ownerOf(number);
      const line = transaction?.lines[number - 1]?.trim();
      if (part !== undefined) reasons.set(part, `The kernel refused "${line}": ${reason}`);
    }
    for (const [part, reason] of reasons) this.#quarantine.refuse(part, reason);
    return reasons.size > 0;
  }
}
