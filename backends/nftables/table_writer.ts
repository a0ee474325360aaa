/**
 * Brings the kernel to what is wanted, and knows what it holds: known is what was applied without a
 * failure or read since. No normal sync lists anything.
 *
 * @module
 */
import type { Clock } from "../../lib/os/clock.ts";
import { pauseBetween } from "../netfilter/pause_between.ts";
import type { RefusedServices } from "../netfilter/refused_services.ts";
import { AppliedTable } from "./applied_table.ts";
import { diffTableInSlices, removeIdleChains } from "./diff.ts";
import type { NftablesLayout } from "./layout.ts";
import { NftError } from "./nft_error.ts";
import type { NftRunner } from "./nft_runner.ts";
import type { Transaction } from "./transaction.ts";
import type { WriteFigures } from "./write_figures.ts";

/** What writing needs. */
export interface TableWriterDependencies {
  readonly clock: Clock;
  readonly runner: Pick<NftRunner, "chains" | "read" | "write">;
  readonly refused: RefusedServices;
}

/** Transactions that may be refused in one sync; each names every element that the kernel refused. */
const MAX_REFUSALS = 8;
/** Chains that nothing leads to, beyond which they are taken away at once. */
const MAX_IDLE_CHAINS = 256;

/** Writes the table of one family. One call is in flight at most. */
export class TableWriter {
  readonly #dependencies: TableWriterDependencies;
  readonly #applied = new AppliedTable();
  #failures = 0;
  #failedCleanups = 0;

  constructor(dependencies: TableWriterDependencies) {
    this.#dependencies = dependencies;
  }

  /** Whether what the kernel holds is known; otherwise the next write reads it first. */
  get isKnown(): boolean {
    return this.#applied.isKnown;
  }

  /** Transactions that failed. */
  get failures(): number {
    return this.#failures;
  }

  /** Of these, those that only took chains away. */
  get failedCleanups(): number {
    return this.#failedCleanups;
  }

  /** Somebody else may have changed it. */
  forget(): void {
    this.#applied.forget();
  }

  /** Chains are to have other rules from now on. */
  forgetRules(): void {
    this.#applied.forgetRules();
  }

  /** Chains of ours that are missing in the kernel. Lists names only. */
  async missingChains(): Promise<readonly string[]> {
    const present = await this.#dependencies.runner.chains();
    return [...this.#applied.chains].filter((name) => !present.has(name));
  }

  /**
   * One transaction, if anything differs. What the kernel refuses of some ServicePorts keeps no
   * other one waiting: the layout has those in quarantine then. Throws an NftError when not even the
   * rest could be written.
   */
  async write(layout: NftablesLayout, figures: WriteFigures): Promise<void> {
    for (let refusals = 1;; refusals++) {
      const wasKnown = this.#applied.isWritten;
      let transaction: Transaction | undefined;
      try {
        if (!this.#applied.isKnown) await this.#read(figures);
        transaction = await this.#diff(layout);
        return await this.#apply(transaction, layout, figures);
      } catch (error) {
        const isRefused = error instanceof NftError && error.kind === "refused";
        const isLast = refusals >= MAX_REFUSALS;
        // The kernel took nothing, so what was just read still holds.
        if (isRefused && !isLast && !wasKnown && this.#leaveOut(layout, { error, transaction })) {
          continue;
        }
        // Mostly the table is not what it was taken for, which says nothing of any Service.
        this.#applied.forget();
        if (!isRefused || isLast) throw error;
      }
    }
  }

  /**
   * Takes away chains that nothing leads to any more, if there are many or all are asked for; the
   * first run takes their numbers, the second one them. A failure is counted, and no failure of a
   * sync: packets never come to such a chain.
   */
  async tidy(
    layout: NftablesLayout,
    { all, figures }: { readonly all: boolean; readonly figures: WriteFigures },
  ): Promise<void> {
    if (!this.#applied.isWritten) return;
    const transaction = removeIdleChains(layout, this.#applied);
    const { removedChains = [], strangers = [] } = transaction.applied;
    const count = removedChains.length + strangers.length;
    if (count === 0 || (!all && count < MAX_IDLE_CHAINS)) return;
    figures.transactions++;
    try {
      await this.#dependencies.runner.write(transaction);
      this.#applied.confirm(transaction.applied);
      figures.add(transaction);
    } catch (error) {
      this.#failures++;
      this.#failedCleanups++;
      this.#applied.forget();
      if (!(error instanceof NftError)) throw error;
    }
  }

  #diff(layout: NftablesLayout): Promise<Transaction> {
    const pause = pauseBetween(this.#dependencies.clock);
    return diffTableInSlices(layout, this.#applied, { pause });
  }

  async #read(figures: WriteFigures): Promise<void> {
    figures.reads++;
    this.#applied.adopt(await this.#dependencies.runner.read());
    figures.changedChains += this.#applied.changedChains;
  }

  async #apply(
    transaction: Transaction,
    layout: NftablesLayout,
    figures: WriteFigures,
  ): Promise<void> {
    if (!transaction.isEmpty) {
      figures.transactions++;
      try {
        await this.#dependencies.runner.write(transaction);
      } catch (error) {
        this.#failures++;
        throw error;
      }
      figures.add(transaction);
    }
    this.#applied.confirm(transaction.applied);
    layout.settle();
  }

  /** Whether the lines that were refused belong to ServicePorts, which are in quarantine now. */
  #leaveOut(
    layout: NftablesLayout,
    { error, transaction }: {
      readonly error: NftError;
      readonly transaction: Transaction | undefined;
    },
  ): boolean {
    const { clock, refused } = this.#dependencies;
    let found = false;
    for (const { number, reason: words } of error.lines) {
      const owner = transaction?.ownerOf(number);
      const plan = owner && layout.plan(owner);
      if (!plan) continue;
      const line = transaction?.lines[number - 1]?.trim();
      const reason = `The kernel refused "${line}": ${words}`;
      refused.refuse(plan, { reason, now: clock.now() });
      layout.quarantine({ key: plan.key, reason });
      found = true;
    }
    return found;
  }
}
