/**
 * Decides when to check for the canaries that a flush removes. Pure except for its own state.
 *
 * @module
 */

/** A flush must be repaired within seconds, however long the sync period is. */
const LONGEST_PAUSE_MS = 10_000;
/** A program that flushes one table often continues with the next one. */
const ALERT_PAUSE_MS = 1_000;
const ALERT_LOOKS = 5;
/**
 * Checks take at most one part in this many of the time: iptables-legacy copies the whole table for
 * a check.
 */
const IDLE_PARTS = 100;

/** Plans looks at the rules. Times are milliseconds. */
export class CanarySchedule {
  readonly #periodMs: number;
  #lookMs = 0;
  #alertLooks = 0;

  /** `periodMs`: longest time between two looks for the canaries, where it is under ten seconds. */
  constructor(periodMs: number) {
    this.#periodMs = Math.min(periodMs, LONGEST_PAUSE_MS);
  }

  /** Time until the next look. */
  get pauseMs(): number {
    const usual = Math.max(this.#periodMs, this.#lookMs * IDLE_PARTS);
    return this.#alertLooks > 0 ? Math.min(usual, ALERT_PAUSE_MS) : usual;
  }

  /** Records the duration of a check. */
  looked(durationMs: number): void {
    this.#lookMs = durationMs;
    if (this.#alertLooks > 0) this.#alertLooks--;
  }

  /** A table had been flushed. */
  lost(): void {
    this.#alertLooks = ALERT_LOOKS;
  }
}
