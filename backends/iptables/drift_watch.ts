/**
 * Notices when others take our rules away, and puts them back.
 *
 * A flush of a table takes its canary along: that is looked for often, in every table, since others
 * flush one table alone (upstream looks at mangle only: kubernetes/kubernetes#129128). What else may
 * be missing or changed is found by reading everything, which is done seldom.
 *
 * @module
 */
import type { Logger } from "../../lib/log/logger.ts";
import type { Clock } from "../../lib/os/clock.ts";
import type { IptablesTable } from "../netfilter/iptables_objects.ts";
import type { IptablesRunner } from "../netfilter/iptables_runner.ts";
import type { DriftFigures } from "../netfilter/drift_figures.ts";
import type { OneAtATime } from "../netfilter/one_at_a_time.ts";
import { IptablesError } from "../netfilter/restore_error.ts";
import { CANARY } from "./base_chains.ts";
import { DriftSchedule } from "./drift_schedule.ts";
import type { WantedRules } from "./wanted_rules.ts";
import { WriteFigures } from "./write_figures.ts";

/** What the watch stands on. */
export interface DriftWatchDependencies {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly random: () => number;
  readonly runner: Pick<IptablesRunner, "hasRules">;
  readonly rules: Pick<WantedRules, "isKnown" | "verify">;
  /** What else writes rules. */
  readonly turns: OneAtATime;
  readonly onDrift?: (figures: DriftFigures) => void;
}

/** How often it looks, and where. */
export interface DriftWatchOptions {
  /** Longest time between two looks for the canaries, milliseconds. */
  readonly periodMs: number;
  readonly tables: readonly IptablesTable[];
}

/** Looks after the rules of one family, from `start()` to `stop()`. */
export class DriftWatch {
  readonly #dependencies: DriftWatchDependencies;
  readonly #options: DriftWatchOptions;
  readonly #schedule: DriftSchedule;
  #abort: AbortController | undefined;
  #running: Promise<void> | undefined;
  /** Whether a comparison failed, or was asked for: it comes at the next look. */
  #isUnfinished = false;

  constructor(dependencies: DriftWatchDependencies, options: DriftWatchOptions) {
    const logger = dependencies.logger.with({ component: "drift_watch" });
    this.#dependencies = { ...dependencies, logger };
    this.#options = options;
    this.#schedule = new DriftSchedule(dependencies.random, options.periodMs);
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
    const { clock, logger, rules } = this.#dependencies;
    this.#schedule.verified(clock.now(), 0);
    for (;;) {
      await clock.sleep(this.#schedule.pauseMs, signal).catch(() => {});
      if (signal.aborted) return;
      // Before the first sync, and after one that failed, the next one compares everything.
      if (!rules.isKnown && !this.#isUnfinished) continue;
      try {
        if (this.#isUnfinished || await this.#isDue()) await this.#verify();
      } catch (error) {
        logger.warn("Cannot look after the rules; it is tried again", { error });
      }
    }
  }

  async #isDue(): Promise<boolean> {
    const { clock, logger } = this.#dependencies;
    const startedAt = clock.now();
    const table = await this.#flushedTable();
    this.#schedule.looked(clock.now() - startedAt);
    if (table !== undefined) {
      logger.warn("Somebody has flushed a table of iptables", { table });
      this.#schedule.lost();
      return true;
    }
    return this.#schedule.isVerificationDue(clock.now());
  }

  /** The first table without its canary. One that can't be looked at now is taken to be whole. */
  async #flushedTable(): Promise<IptablesTable | undefined> {
    const { runner } = this.#dependencies;
    for (const table of this.#options.tables) {
      try {
        if (!await runner.hasRules(table, CANARY)) return table;
      } catch (error) {
        if (!(error instanceof IptablesError)) throw error;
        this.#dependencies.logger.verbose(2, "Cannot look for the canary", { table, error });
      }
    }
    return undefined;
  }

  async #verify(): Promise<void> {
    const { clock, logger, onDrift, rules, turns } = this.#dependencies;
    const figures = new WriteFigures();
    this.#isUnfinished = true;
    await turns.run(async () => {
      const startedAt = clock.now();
      await rules.verify(figures);
      this.#schedule.verified(clock.now(), clock.now() - startedAt);
    });
    this.#isUnfinished = false;
    const { chains, removedChains, jumps } = figures;
    const counts = { chain: chains + removedChains, rule: jumps } as const;
    if (counts.chain + counts.rule === 0) return;
    logger.warn("Rules were missing or changed; they are repaired", { chains, jumps });
    for (const kind of ["chain", "rule"] as const) {
      const found = counts[kind];
      if (found > 0) onDrift?.({ kind, found, repaired: found });
    }
  }
}
