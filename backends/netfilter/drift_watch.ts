/**
 * Notices when others take away or change what a mode has in the kernel, and has it put right.
 *
 * What a flush takes along is looked for often, which is cheap. What else may be missing or changed is
 * found by reading everything, the dearer the more seldom.
 *
 * @module
 */
import type { LogFields, Logger } from "../../lib/log/logger.ts";
import type { Clock } from "../../lib/os/clock.ts";
import type { DriftFigures } from "./drift_figures.ts";
import type { OneAtATime } from "../../lib/os/one_at_a_time.ts";
import type { VerificationSchedule } from "./verification_schedule.ts";

/** What a mode has in the kernel for one family. */
export interface DriftSubject {
  /** Whether what the kernel holds is known. */
  readonly isKnown: boolean;
  /** Whether a sync took changes that it has not written: then not every difference is drift. */
  readonly isPending: boolean;
  /** Time until the next look, milliseconds. */
  readonly pauseMs: number;
  /** Looks for what a flush takes along: what is said of it where it is gone, else `undefined`. */
  look(): Promise<LogFields | undefined>;
  /** Reads everything, and puts right what differs. Nothing else writes meanwhile. */
  verify(): Promise<DriftFound>;
}

/** What a comparison of everything found to differ, and repaired. */
export interface DriftFound {
  readonly counts: Readonly<Partial<Record<DriftFigures["kind"], number>>>;
  /** For the log, if something was found. */
  readonly fields: LogFields;
}

/** What the log calls it. */
interface DriftTexts {
  /** What a flush takes along is gone. */
  readonly lost: string;
  /** A comparison found something. */
  readonly changed: string;
  /** A look or a comparison failed. */
  readonly failed: string;
}

/** What the watch stands on. */
interface DriftWatchDependencies {
  readonly clock: Clock;
  readonly logger: Logger;
  /** When everything is compared. Whoever makes it plans the first time, by `expect()`. */
  readonly schedule: VerificationSchedule;
  readonly subject: DriftSubject;
  /** What else writes. */
  readonly turns: OneAtATime;
  readonly onDrift?: ((figures: DriftFigures) => void) | undefined;
}

/** Looks after the rules of one family, from `start()` to `stop()`. */
export class DriftWatch {
  readonly #dependencies: DriftWatchDependencies;
  readonly #words: DriftTexts;
  #abort: AbortController | undefined;
  #running: Promise<void> | undefined;
  #pause: AbortController | undefined;
  /** Whether a comparison failed, or was asked for: it comes at the next look. */
  #isUnfinished = false;
  /** Whether the next look is not waited for. */
  #isAsked = false;

  constructor(dependencies: DriftWatchDependencies, words: DriftTexts) {
    const logger = dependencies.logger.with({ component: "drift_watch" });
    this.#dependencies = { ...dependencies, logger };
    this.#words = words;
  }

  /** Begins to look. */
  start(): void {
    this.#abort = new AbortController();
    this.#running = this.#run(this.#abort.signal);
  }

  /** Everything is compared now: a look that is slow comes once in minutes. */
  recheck(): void {
    this.#isUnfinished = true;
    this.#isAsked = true;
    this.#pause?.abort();
  }

  /** Ends looking; a repair that is under way comes to its end. */
  async stop(): Promise<void> {
    this.#abort?.abort();
    this.#pause?.abort();
    await this.#running;
  }

  async #run(signal: AbortSignal): Promise<void> {
    const { clock, logger, subject } = this.#dependencies;
    for (;;) {
      if (!this.#isAsked && !signal.aborted) {
        this.#pause = new AbortController();
        await clock.sleep(subject.pauseMs, this.#pause.signal).catch(() => {});
      }
      this.#isAsked = false;
      if (signal.aborted) return;
      // Before the first sync, and after one that failed, the next one compares everything.
      if (!subject.isKnown && !this.#isUnfinished) continue;
      try {
        if (this.#isUnfinished || await this.#isDue()) await this.#verify();
      } catch (error) {
        logger.warn(this.#words.failed, { error });
        // What the failure left unknown is compared at the next look.
        if (!subject.isKnown) this.#isUnfinished = true;
      }
    }
  }

  async #isDue(): Promise<boolean> {
    const { clock, logger, schedule, subject } = this.#dependencies;
    const lost = await subject.look();
    if (lost === undefined) return schedule.isDue(clock.now());
    logger.warn(this.#words.lost, lost);
    return true;
  }

  async #verify(): Promise<void> {
    const { logger, onDrift } = this.#dependencies;
    // Before it begins: another one that is asked for meanwhile comes after it.
    this.#isUnfinished = false;
    const found = await this.#compare().catch((error) => {
      this.#isUnfinished = true;
      throw error;
    });
    if (found === undefined) {
      this.#isUnfinished = true;
      return;
    }
    const { counts, fields } = found;
    const different = Object.entries(counts).filter(([, count]) => count > 0);
    if (different.length === 0) return;
    logger.warn(this.#words.changed, fields);
    for (const [kind, count] of different) {
      onDrift?.({ kind: kind as DriftFigures["kind"], found: count, repaired: count });
    }
  }

  /** What was found; `undefined` = it is too early, since what a sync has failed to write differs too. */
  #compare(): Promise<DriftFound | undefined> {
    const { clock, schedule, subject, turns } = this.#dependencies;
    return turns.run(async () => {
      // The sync comes again, and compares everything.
      if (subject.isPending) return undefined;
      const startedAt = clock.now();
      const found = await subject.verify();
      schedule.verified(clock.now(), clock.now() - startedAt);
      return found;
    });
  }
}
