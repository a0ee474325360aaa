interface TokenBucketOptions {
  /** Milliseconds for one token; 0 = never wait. */
  readonly periodMs: number;
  /** Most tokens that the bucket holds; it starts full. */
  readonly burst: number;
}

/** Tolerance for rounding of the clock, so that a regular run does not count as extra. */
const ROUNDING_MS = 1;
/** A run that changed nothing costs this many times its duration, and a token at most. */
const UNCHANGED_COST = 20;

/**
 * Spaces syncs. Tokens are kept as milliseconds of credit, so that whole periods add up without
 * rounding.
 *
 * A run is *regular* if it starts at least a period after the end of the regular run before it:
 * kube-proxy would run then as well. Any other run is *extra*. No credit is earned during a regular
 * run, so a run that lasts longer than the period is followed by a pause (the complaint of
 * kubernetes/kubernetes#138073). Credit is earned during an extra run, at most one token: otherwise
 * the run after it would come later than kube-proxy's.
 */
export class TokenBucket {
  readonly #periodMs: number;
  readonly #capacityMs: number;
  #creditMs: number;
  #countedFrom = 0;
  #regularEndedAt = -Infinity;
  /** `undefined` while no run is in flight. */
  #run: { readonly startedAt: number; readonly isRegular: boolean } | undefined;

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

  /**
   * Takes a token for a run that starts now. A run that `waited` leaves no credit, or late timers
   * would add up to extra runs. Throws a RangeError if there is no token.
   */
  take(now: number, { waited = false }: { readonly waited?: boolean } = {}): void {
    if (this.waitMs(now) > 0) {
      throw new RangeError(`Cannot take a token at ${now} ms: none for ${this.waitMs(now)} ms`);
    }
    this.#creditMs = waited ? 0 : this.#creditAt(now) - this.#periodMs;
    this.#run = {
      startedAt: now,
      isRegular: now - this.#regularEndedAt >= this.#periodMs - ROUNDING_MS,
    };
  }

  /** Records the end of a run. Most of the token is returned if it changed nothing. */
  runEnded(now: number, { unchanged = false }: { readonly unchanged?: boolean } = {}): void {
    if (this.#run === undefined) return;
    const { startedAt, isRegular } = this.#run;
    const durationMs = now - startedAt;
    this.#run = undefined;
    this.#countedFrom = now;
    if (unchanged) {
      this.#creditMs += Math.max(0, this.#periodMs - UNCHANGED_COST * durationMs);
    } else if (isRegular) this.#regularEndedAt = now;
    else {this.#creditMs = Math.max(
        this.#creditMs,
        Math.min(this.#periodMs, this.#creditMs + durationMs),
      );}
  }

  /** Records that a run ended before its work was done. The run that continues it uses the token. */
  runInterrupted(now: number): void {
    if (this.#run === undefined) return;
    this.#run = undefined;
    this.#countedFrom = now;
    this.#creditMs += this.#periodMs;
  }

  #creditAt(now: number): number {
    const earned = this.#run ? 0 : Math.max(0, now - this.#countedFrom);
    return Math.min(this.#capacityMs, this.#creditMs + earned);
  }
}
