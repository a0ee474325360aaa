/**
 * What is slow: far longer than usual on this machine, and long for a person.
 *
 * @module
 */

/** Durations that the usual is taken of. */
const MOST_TIMES = 50;
/** What is below this is never slow. */
const SHORTEST_MS = 1000;
const TIMES_USUAL = 10;

/** Remembers how long things took. */
export class SlowSyncs {
  readonly #shortestMs: number;
  readonly #times: number[] = [];

  /** `waitMs` = how long a change may have to wait for its sync by the settings. */
  constructor({ waitMs }: { readonly waitMs: number }) {
    this.#shortestMs = SHORTEST_MS + waitMs;
  }

  /** Takes a duration and tells whether it is slow beside those before it. */
  isSlow(durationMs: number): boolean {
    const sorted = this.#times.toSorted((a, b) => a - b);
    const median = sorted[Math.floor(sorted.length / 2)] ?? 0;
    this.#times.push(durationMs);
    if (this.#times.length > MOST_TIMES) this.#times.shift();
    return durationMs > Math.max(this.#shortestMs, TIMES_USUAL * median);
  }
}
