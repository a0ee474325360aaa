/**
 * Notices when other programs remove or change a mode's objects in the kernel, and has them
 * repaired.
 *
 * Objects that a flush removes are checked often, which is cheap. Other changes are detected by a
 * full read, at an interval that grows with its cost.
 *
 * @module
 */
import type { LogFields, Logger } from "../../lib/log/logger.ts";
import type { Clock } from "../../lib/os/clock.ts";
import type { OneAtATime } from "../../lib/net/one_at_a_time.ts";
import type { VerificationSchedule } from "./verification_schedule.ts";

/** The objects of a mode in the kernel, for one family. */
export interface DriftSubject {
  /** Whether the content of the kernel is known. */
  readonly isKnown: boolean;
  /** Whether a sync has unwritten changes: then not every difference is drift. */
  readonly isPending: boolean;
  /** Time until the next look, milliseconds. */
  readonly pauseMs: number;
  /** Checks for a flush: returns log fields if something is missing, else `undefined`. */
  look(): Promise<LogFields | undefined>;
  /** Reads everything and repairs differences. No other writes happen in between. */
  verify(): Promise<DriftFound>;
}

/** The differences that a full comparison found and repaired. */
export interface DriftFound {
  readonly counts: Readonly<Partial<Record<DriftFigures["kind"], number>>>;
  /** The log message for differences. */
  readonly fields: LogFields;
}

/** Messages of the log. */
export interface DriftTexts {
  /** A flush was detected. */
  readonly lost: string;
  /** A comparison found something. */
  readonly changed: string;
  /** A look or a comparison failed. */
  readonly failed: string;
}

interface DriftWatchDependencies {
  readonly clock: Clock;
  readonly logger: Logger;
  /** Decides when everything is compared. The creator plans the first comparison, by `expect()`. */
  readonly schedule: VerificationSchedule;
  readonly subject: DriftSubject;
  /** Serializes the watch with other writers. */
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
  /** Whether a comparison failed or was requested: the next check repeats it. */
  #isUnfinished = false;
  /** Whether the next check runs at once. */
  #isAsked = false;

  constructor(dependencies: DriftWatchDependencies, words: DriftTexts) {
    const logger = dependencies.logger.with({ component: "drift_watch" });
    this.#dependencies = { ...dependencies, logger };
    this.#words = words;
  }

  /** Begins to look, unless it does. */
  start(): void {
    if (this.#abort) return;
    this.#abort = new AbortController();
    this.#running = this.#run(this.#abort.signal);
  }

  /** Compares everything now. A slow comparison runs only once in minutes. */
  recheck(): void {
    this.#isUnfinished = true;
    this.#isAsked = true;
    this.#pause?.abort();
  }

  /** Stops checking after a repair in progress. */
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
        // The next check covers everything that the failure left unknown.
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
    // Reset first, so that a request during the check is not lost.
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

  /**
   * Returns the differences; `undefined` = too early, since unwritten changes of a sync differ too.
   */
  #compare(): Promise<DriftFound | undefined> {
    const { clock, schedule, subject, turns } = this.#dependencies;
    return turns.run(async () => {
      // The sync is tried again and compares everything.
      if (subject.isPending) return undefined;
      const startedAt = clock.now();
      const found = await subject.verify();
      schedule.verified(clock.now(), clock.now() - startedAt);
      return found;
    });
  }
}

/** Differences that a check of the kernel found and repaired. */
export interface DriftFigures {
  readonly kind: "chain" | "rule" | "set" | "virtual_server" | "address";
  readonly found: number;
  readonly repaired: number;
}
