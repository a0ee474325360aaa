/**
 * The token bucket that spaces syncs. Pure arithmetic: time is passed in.
 *
 * @module
 */

/** What a bucket is made of. */
export interface TokenBucketOptions {
  /** Milliseconds in which one token comes back; 0 = never any waiting. */
  readonly periodMs: number;
  /** Most tokens that the bucket holds; it starts full. */
  readonly burst: number;
}

/**
 * Tokens are kept as milliseconds of credit, so that whole periods add up without rounding. Credit is
 * counted from the END of a run: otherwise a run that lasts longer than the period would be followed
 * by the next one at once (the complaint of kubernetes/kubernetes#138073).
 */
export class TokenBucket {
  readonly #periodMs: number;
  readonly #capacityMs: number;
  #creditMs: number;
  /** `undefined` while a run is in flight: no credit then. */
  #countedFrom: number | undefined = 0;

  constructor({ periodMs, burst }: TokenBucketOptions) {
    if (!(periodMs >= 0)) {
      throw new RangeError(`Cannot create a token bucket with period '${periodMs}': at least 0 ms`);
    }
    if (!Number.isInteger(burst) || burst < 1) {
      throw new RangeError(`Cannot create a token bucket with burst '${burst}': at least 1`);
    }
    this.#periodMs = periodMs;
    this.#capacityMs = periodMs * burst;
    this.#creditMs = this.#capacityMs;
  }

  /** Milliseconds from `now` until {@linkcode take} may be called. */
  waitMs(now: number): number {
    return Math.max(0, this.#periodMs - this.#creditAt(now));
  }

  /** Takes a token for a run that starts now. Throws a RangeError when there is none. */
  take(now: number): void {
    if (this.waitMs(now) > 0) {
      throw new RangeError(`Cannot take a token at ${now} ms: none for ${this.waitMs(now)} ms`);
    }
    this.#creditMs = this.#creditAt(now) - this.#periodMs;
    this.#countedFrom = undefined;
  }

  /** The run that took a token has ended; credit is counted again. */
  runEnded(now: number): void {
    this.#countedFrom = now;
  }

  #creditAt(now: number): number {
    const earned = this.#countedFrom === undefined ? 0 : Math.max(0, now - this.#countedFrom);
    return Math.min(this.#capacityMs, this.#creditMs + earned);
  }
}
