/**
 * Writes the desired table, and knows the applied one: that which was written without a failure or
 * read since. A normal sync lists nothing.
 *
 * @module
 */
import type { Clock } from "../../lib/os/clock.ts";
import { inSteps } from "../netfilter/in_steps.ts";
import { refusedItem, type RefusedItems } from "../netfilter/refused_items.ts";
import { ChainHandles } from "../netfilter/nft/chain_handles.ts";
import { NftError } from "../netfilter/nft/nft_error.ts";
import { EMPTY_TABLE } from "../netfilter/nft/table_listing.ts";
import { AppliedTable } from "./applied_table.ts";
import { diffTableInSteps, removeIdleChains, type TableDifference } from "./diff.ts";
import type { EntryId } from "./entry_id.ts";
import type { Entry } from "./entry.ts";
import { orderTexts } from "./endpoint_order_text.ts";
import type { NftablesLayout } from "./layout.ts";
import type { NftRunner } from "../netfilter/nft/nft_runner.ts";
import type { WantedRules } from "../netfilter/wanted_rules.ts";
import type { NftablesRenderOptions } from "./render_options.ts";
import { WriteFigures } from "./write_figures.ts";

/** The rules of nftables mode. */
export type NftablesRules = WantedRules<NftablesLayout, NftablesRenderOptions, WriteFigures>;

interface TableWriterDependencies {
  readonly clock: Clock;
  readonly runner: Pick<NftRunner, "chains" | "read" | "write">;
  readonly refused: RefusedItems;
}

/** A transaction that was refused. */
interface Refusal {
  readonly error: NftError;
  readonly difference: TableDifference | undefined;
}

/** Transactions that may be refused in one sync; each names every element that the kernel refused. */
const MAX_REFUSALS = 8;
/** Readings until two have the same changes. */
const MAX_READINGS = 5;
/** Number of failed readings in a row after which the table is replaced without a reading. */
const FAILED_READS = 3;
/** Beyond this number, unused chains are removed at once. */
const MAX_IDLE_CHAINS = 256;

/** Writes the table of one family. One call is in flight at most. */
export class TableWriter {
  readonly #dependencies: TableWriterDependencies;
  readonly #applied = new AppliedTable();
  readonly #handles = new ChainHandles();
  /** Since the last successful sync. */
  #failedReads = 0;
  #failures = 0;
  #failedCleanups = 0;

  constructor(dependencies: TableWriterDependencies) {
    this.#dependencies = dependencies;
  }

  /** Whether the content of the kernel is known; otherwise the next write reads it first. */
  get isKnown(): boolean {
    return this.#applied.isKnown;
  }

  /** Transactions that failed. */
  get failures(): number {
    return this.#failures;
  }

  /** The failed writes that only removed chains. */
  get failedCleanups(): number {
    return this.#failedCleanups;
  }

  /** Returns the entry that the kernel is known to hold. */
  entry(id: EntryId): Entry | undefined {
    return this.#applied.entry(id);
  }

  /**
   * Returns the numbering of endpoints that the plan does not determine; see {@linkcode
   * orderTexts}.
   */
  orders(layout: NftablesLayout): Generator<void, readonly string[]> {
    return orderTexts(this.#applied.lastEntries(), layout);
  }

  /** Another program may have changed it. */
  forget(): void {
    this.#applied.forget();
  }

  /** Chains are to have other rules from now on. */
  forgetRules(): void {
    this.#applied.forgetRules();
  }

  /**
   * Returns the chains that are missing in the kernel, or that another program recreated since the
   * last check, e.g. by restoring an old table. Lists no rules or elements.
   */
  async missingChains(): Promise<readonly string[]> {
    return await this.#handles.missing(this.#dependencies.runner, this.#applied.chains);
  }

  /** Writes the difference, and removes chains out of use if there are many. Throws an NftError. */
  async write(layout: NftablesLayout, figures: WriteFigures): Promise<void> {
    await this.#write(layout, figures);
    await this.tidy(layout, { all: false, figures });
  }

  /** Reads everything, writes the difference, and removes all chains out of use. */
  async verify(layout: NftablesLayout, figures: WriteFigures): Promise<void> {
    // Otherwise the reading would find the unused chains and count them as changes by other
    // programs.
    await this.tidy(layout, { all: true, figures: new WriteFigures() });
    this.forget();
    await this.#write(layout, figures);
    await this.tidy(layout, { all: true, figures });
  }

  /**
   * Runs one transaction if anything differs. ServicePorts that the kernel refuses are quarantined
   * and do not delay others. A table that cannot be repaired, e.g. with a base chain of another
   * priority or a map of other types, is replaced; only lines that fail in a new table too are
   * blamed on a ServicePort. Throws an NftError if even the rest cannot be written.
   */
  async #write(layout: NftablesLayout, figures: WriteFigures): Promise<void> {
    for (let refusals = 1;; refusals++) {
      const wasKnown = this.#applied.isWritten;
      let difference: TableDifference | undefined;
      try {
        if (!this.#applied.isKnown) await this.#read(figures);
        difference = await this.#diff(layout);
        return await this.#apply(difference, layout, figures);
      } catch (error) {
        const isRefused = error instanceof NftError && error.kind === "refused";
        const isLast = refusals >= MAX_REFUSALS;
        // Usually the table is not in the assumed state, which is no fault of a Service.
        if (isRefused && !isLast && wasKnown) this.#applied.forget();
        else if (!isRefused || isLast || !this.#giveWay(layout, { error, difference })) {
          this.#applied.forget();
          throw error;
        }
      }
    }
  }

  /**
   * Removes unreferenced chains, if there are many or all are requested. The first run removes
   * their numbers, the second one the chains. A failure is counted but does not fail the sync,
   * because packets never reach such a chain.
   */
  async tidy(
    layout: NftablesLayout,
    { all, figures }: { readonly all: boolean; readonly figures: WriteFigures },
  ): Promise<void> {
    if (!this.#applied.isWritten) return;
    const difference = removeIdleChains(layout, this.#applied);
    const { removedChains = [], unnumberedChains = [] } = difference.applied;
    const count = removedChains.length + unnumberedChains.length;
    if (count === 0 || (!all && count < MAX_IDLE_CHAINS)) return;
    figures.transactions++;
    try {
      await this.#dependencies.runner.write(difference.transaction);
      this.#confirm(difference);
      figures.add(difference);
    } catch (error) {
      this.#failures++;
      this.#failedCleanups++;
      this.#applied.forget();
      if (!(error instanceof NftError)) throw error;
    }
  }

  #diff(layout: NftablesLayout): Promise<TableDifference> {
    return inSteps(this.#dependencies, diffTableInSteps(layout, this.#applied));
  }

  /**
   * Replaces a table whose listing fails repeatedly: nft 1.0.6 crashes on some foreign maps, or
   * takes too long for all clients of a map. Nothing else could be written until then.
   */
  async #read(figures: WriteFigures): Promise<void> {
    figures.reads++;
    this.#handles.forgetAll();
    try {
      const { runner } = this.#dependencies;
      let reading = await runner.read();
      let changed = this.#applied.changesIn(reading);
      // The kernel may cut listings off, see nft_runner.ts: a change is one that two of them have.
      for (let readings = 1; changed.length > 0 && readings < MAX_READINGS; readings++) {
        const before = `${changed}`;
        reading = await runner.read();
        changed = this.#applied.changesIn(reading);
        if (`${changed}` === before) break;
      }
      for (const name of changed) figures.changed.push(name);
      this.#applied.adopt(reading);
      this.#failedReads = 0;
    } catch (error) {
      const isUnclear = error instanceof NftError && error.kind === "unclear";
      if (!isUnclear || ++this.#failedReads < FAILED_READS) throw error;
      this.#applied.adoptDamaged(EMPTY_TABLE);
    }
    figures.changedObjects += this.#applied.changedObjects;
  }

  #confirm({ applied }: TableDifference): void {
    const { chains, removedChains = [] } = applied;
    this.#handles.forget([...chains, ...removedChains]);
    this.#applied.confirm(applied);
  }

  async #apply(
    difference: TableDifference,
    layout: NftablesLayout,
    figures: WriteFigures,
  ): Promise<void> {
    if (!difference.transaction.isEmpty) {
      figures.transactions++;
      try {
        await this.#dependencies.runner.write(difference.transaction);
      } catch (error) {
        this.#failures++;
        throw error;
      }
      figures.add(difference);
    }
    this.#confirm(difference);
    layout.settle();
  }

  /**
   * Handles a refusal. The kernel applied nothing, so the last read is still valid. First the table
   * is replaced, then the ServicePorts of refused lines are quarantined, in which case the existing
   * table is kept. Returns whether to try again.
   */
  #giveWay(layout: NftablesLayout, refusal: Refusal): boolean {
    const { isToBeReplaced, reading } = this.#applied;
    if (reading !== undefined && !isToBeReplaced) {
      this.#applied.adoptDamaged(reading);
      return true;
    }
    if (!this.#leaveOut(layout, refusal)) return false;
    this.#applied.adopt(reading);
    return true;
  }

  /** Whether the refused lines belong to ServicePorts, which are then quarantined. */
  #leaveOut(
    layout: NftablesLayout,
    { error, difference }: Refusal,
  ): boolean {
    const { clock, refused } = this.#dependencies;
    const transaction = difference?.transaction;
    const lines = transaction?.toLines();
    let found = false;
    for (const { number, reason: words } of error.lines) {
      const owner = transaction?.ownerOf(number);
      const plan = owner && layout.plan(owner);
      if (!plan) continue;
      const line = lines?.[number - 1]?.trim();
      const reason = `The kernel refused "${line}": ${words}`;
      const refusal = refused.refuse(plan, { reason, now: clock.now() });
      layout.quarantine(refusedItem(clock, plan.key, refusal));
      found = true;
    }
    return found;
  }
}
