/**
 * Notices when others take our table away or change it, and puts it right.
 *
 * `nft flush ruleset` takes every chain along, also where an older copy of the table comes in its
 * place: the chains are looked for often, which costs the same at any number of Services. What else may have changed is found by reading the whole table: of
 * a small one within seconds too, the larger the more seldom.
 *
 * @module
 */
import type { Logger } from "../../lib/log/logger.ts";
import type { Clock } from "../../lib/os/clock.ts";
import type { DriftFigures } from "../netfilter/drift_figures.ts";
import type { OneAtATime } from "../netfilter/one_at_a_time.ts";
import { VerificationSchedule } from "../netfilter/verification_schedule.ts";
import type { WantedTable } from "./wanted_table.ts";
import { WriteFigures } from "./write_figures.ts";

/** What the watch stands on. */
export interface DriftWatchDependencies {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly random: () => number;
  readonly table: Pick<WantedTable, "isKnown" | "missingChains" | "serviceCount" | "verify">;
  /** What else writes the table. */
  readonly turns: OneAtATime;
  readonly onDrift?: (figures: DriftFigures) => void;
}

/** A flush is to be repaired within seconds, however long the sync period is. */
const LONGEST_PAUSE_MS = 5_000;

/** What reading is taken to cost before it was measured: a second at 10,000 Services. */
const READING_MS_PER_SERVICE = 0.1;

/** Looks after the table of one family, from `start()` to `stop()`. */
export class DriftWatch {
  readonly #dependencies: DriftWatchDependencies;
  readonly #pauseMs: number;
  readonly #schedule: VerificationSchedule;
  #abort: AbortController | undefined;
  #running: Promise<void> | undefined;
  /** Whether a comparison failed, or was asked for: it comes at the next look. */
  #isUnfinished = false;

  /** `periodMs`: longest time between two looks, where it is under five seconds. */
  constructor(dependencies: DriftWatchDependencies, { periodMs }: { readonly periodMs: number }) {
    const logger = dependencies.logger.with({ component: "drift_watch" });
    this.#dependencies = { ...dependencies, logger };
    this.#pauseMs = Math.min(periodMs, LONGEST_PAUSE_MS);
    this.#schedule = new VerificationSchedule(dependencies.random, {
      shortestMs: 2 * this.#pauseMs,
    });
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
    let isPlanned = false;
    for (;;) {
      await clock.sleep(this.#pauseMs, signal).catch(() => {});
      if (signal.aborted) return;
      // Before the first sync, and after one that failed, the next one compares everything.
      if (!table.isKnown && !this.#isUnfinished) continue;
      if (!isPlanned) {
        this.#schedule.verified(clock.now(), table.serviceCount * READING_MS_PER_SERVICE);
        isPlanned = true;
      }
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
      logger.warn("Somebody has taken away chains of nftables, or made them anew", {
        count: missing.length,
        chain: missing[0],
      });
    }
    return missing.length > 0 || this.#schedule.isDue(clock.now());
  }

  async #verify(): Promise<void> {
    const { clock, logger, onDrift, table, turns } = this.#dependencies;
    const figures = new WriteFigures();
    this.#isUnfinished = true;
    const missing = await turns.run(async () => {
      const startedAt = clock.now();
      const missing = await table.missingChains();
      await table.verify(figures);
      this.#schedule.verified(clock.now(), clock.now() - startedAt);
      return missing.length;
    });
    this.#isUnfinished = false;
    const counts = { chain: missing + figures.changedObjects, rule: figures.elements } as const;
    if (counts.chain + counts.rule === 0) return;
    const { chain: chains, rule: elements } = counts;
    logger.warn("Rules were missing or changed; they are repaired", { chains, elements });
    for (const kind of ["chain", "rule"] as const) {
      const found = counts[kind];
      if (found > 0) onDrift?.({ kind, found, repaired: found });
    }
  }
}
