/**
 * When to look for the canaries, and when to read everything. Pure but for its own state.
 *
 * @module
 */

/** A flush is to be repaired within seconds, however long the sync period is. */
const LONGEST_PAUSE_MS = 10_000;
/** Who flushes one table often goes on with the next. */
const ALERT_PAUSE_MS = 1_000;
const ALERT_LOOKS = 5;
/** iptables-legacy copies the whole table for a look: at most one part in so many of the time. */
const IDLE_PARTS = 100;
const VERIFY_EVERY_MS = 300_000;
/** Reading everything takes a second at 10,000 Services; at any size it is done once an hour. */
const LONGEST_VERIFY_EVERY_MS = 3_600_000;
const VERIFY_IDLE_PARTS = 300;

/** Plans looks at the rules. Times are milliseconds of one clock. */
export class DriftSchedule {
  readonly #random: () => number;
  readonly #periodMs: number;
  #lookMs = 0;
  #alertLooks = 0;
  #verifyAt = 0;

  /** `periodMs`: longest time between two looks for the canaries, where it is under ten seconds. */
  constructor(random: () => number, periodMs: number) {
    this.#random = random;
    this.#periodMs = Math.min(periodMs, LONGEST_PAUSE_MS);
  }

  /** Time until the next look. */
  get pauseMs(): number {
    const usual = Math.max(this.#periodMs, this.#lookMs * IDLE_PARTS);
    return this.#alertLooks > 0 ? Math.min(usual, ALERT_PAUSE_MS) : usual;
  }

  /** A look took so long. */
  looked(durationMs: number): void {
    this.#lookMs = durationMs;
    if (this.#alertLooks > 0) this.#alertLooks--;
  }

  /** A table had been flushed. */
  lost(): void {
    this.#alertLooks = ALERT_LOOKS;
  }

  isVerificationDue(now: number): boolean {
    return now >= this.#verifyAt;
  }

  /** Everything was read and compared, which took so long. */
  verified(now: number, durationMs: number): void {
    const wanted = Math.max(VERIFY_EVERY_MS, durationMs * VERIFY_IDLE_PARTS);
    // The nodes of a cluster that were started together are not to beat in time.
    const every = Math.min(wanted, LONGEST_VERIFY_EVERY_MS) * (1 - this.#random() / 10);
    this.#verifyAt = now + every;
  }
}
