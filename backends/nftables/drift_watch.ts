/**
 * Notices when others take our table away or change it, and puts it right.
 *
 * `nft flush ruleset` takes every chain along: their names are looked for often, which costs the
 * same at any number of Services. What else may have changed is found by reading the whole table,
 * which is done seldom.
 *
 * @module
 */
import type { Logger } from "../../lib/log/logger.ts";
import type { Clock } from "../../lib/os/clock.ts";
import type { OneAtATime } from "../netfilter/one_at_a_time.ts";
import type { WantedTable } from "./wanted_table.ts";
import { WriteFigures } from "./write_figures.ts";

/** What was found different and put right. */
export interface DriftFigures {
  readonly kind: "chain" | "rule";
  readonly found: number;
  readonly repaired: number;
}

/** What the watch stands on. */
export interface DriftWatchDependencies {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly random: () => number;
  readonly table: Pick<WantedTable, "isKnown" | "missingChains" | "verify">;
  /** What else writes the table. */
  readonly turns: OneAtATime;
  readonly onDrift?: (figures: DriftFigures) => void;
}

/** A flush is to be repaired within seconds, however long the sync period is. */
const LONGEST_PAUSE_MS = 5_000;
const VERIFY_EVERY_MS = 300_000;
/** Reading everything takes seconds at 44,000 Services; at any size it is done once an hour. */
const LONGEST_VERIFY_EVERY_MS = 3_600_000;
const VERIFY_IDLE_PARTS = 300;

/** Looks after the table of one family, from `start()` to `stop()`. */
export class DriftWatch {
  readonly #dependencies: DriftWatchDependencies;
  readonly #pauseMs: number;
  #abort: AbortController | undefined;
  #running: Promise<void> | undefined;
  /** Whether a comparison failed, or was asked for: it comes at the next look. */
  #isUnfinished = false;
  #verifyAt = 0;

  /** `periodMs`: longest time between two looks, where it is under five seconds. */
  constructor(dependencies: DriftWatchDependencies, { periodMs }: { readonly periodMs: number }) {
    const logger = dependencies.logger.with({ component: "drift_watch" });
    this.#dependencies = { ...dependencies, logger };
    this.#pauseMs = Math.min(periodMs, LONGEST_PAUSE_MS);
  }

  /** Begins to look. */
  start(): void {
    this.#abort = new AbortController();
    this.#running = this.#run(this.#abort.signal);
  }

  /** Everything is compared at the next look. */
  recheck(): void {
    this.#isUnfinished = true;
  }

  /** Ends looking; a repair that is under way comes to its end. */
  async stop(): Promise<void> {
    this.#abort?.abort();
    await this.#running;
  }

  async #run(signal: AbortSignal): Promise<void> {
    const { clock, logger, table } = this.#dependencies;
    this.#verified(0);
    for (;;) {
      await clock.sleep(this.#pauseMs, signal).catch(() => {});
      if (signal.aborted) return;
      // Before the first sync, and after one that failed, the next one compares everything.
      if (!table.isKnown && !this.#isUnfinished) continue;
      try {
        if (this.#isUnfinished || await this.#isDue()) await this.#verify();
      } catch (error) {
        logger.warn("Cannot look after the table; it is tried again", { error });
      }
    }
  }

  async #isDue(): Promise<boolean> {
    const { clock, logger, table, turns } = this.#dependencies;
    const missing = await turns.run(() => table.missingChains());
    if (missing.length > 0) {
      logger.warn("Somebody has taken away chains of nftables", {
        count: missing.length,
        chain: missing[0],
      });
    }
    return missing.length > 0 || clock.now() >= this.#verifyAt;
  }

  async #verify(): Promise<void> {
    const { clock, logger, onDrift, table, turns } = this.#dependencies;
    const figures = new WriteFigures();
    const startedAt = clock.now();
    this.#isUnfinished = true;
    const missing = await turns.run(async () => {
      const missing = await table.missingChains();
      await table.verify(figures);
      return missing.length;
    });
    this.#isUnfinished = false;
    this.#verified(clock.now() - startedAt);
    const counts = { chain: missing + figures.changedChains, rule: figures.elements } as const;
    if (counts.chain + counts.rule === 0) return;
    const { chain: chains, rule: elements } = counts;
    logger.warn("Rules were missing or changed; they are repaired", { chains, elements });
    for (const kind of ["chain", "rule"] as const) {
      const found = counts[kind];
      if (found > 0) onDrift?.({ kind, found, repaired: found });
    }
  }

  #verified(durationMs: number): void {
    const { clock, random } = this.#dependencies;
    const wanted = Math.max(VERIFY_EVERY_MS, durationMs * VERIFY_IDLE_PARTS);
    // The nodes of a cluster that were started together are not to beat in time.
    const every = Math.min(wanted, LONGEST_VERIFY_EVERY_MS) * (1 - random() / 10);
    this.#verifyAt = clock.now() + every;
  }
}
