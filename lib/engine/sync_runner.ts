/**
 * Decides when a sync runs: combines requests, spaces runs by a token bucket, retries failed runs,
 * and runs periodically. Always one run in flight.
 *
 * @module
 */
import type { Clock, Timer } from "../os/clock.ts";
import { TokenBucket } from "./token_bucket.ts";

/** The limits on when runs may and must happen. */
export interface SyncRunnerOptions {
  /** Time for one token, counted from the end of a regular run. */
  readonly minPeriodMs: number;
  /** Number of successive runs without a wait, after a quiet time. @default {2} */
  readonly burst?: number;
  /** Longest time from the end of a run to the next one. */
  readonly maxPeriodMs: number;
  /** Delay of the n-th successive retry (n from 1), at most {@linkcode maxPeriodMs}. */
  readonly retryMs: (attempt: number) => number;
}

/**
 * The result of a run. `unchanged`: no operation was needed, so the next change need not wait for
 * it. `unfinished`: the next run continues this one, at once. `retry` requests another run soon, as
 * does a rejected promise.
 */
export type RunOutcome = "done" | "unchanged" | "unfinished" | "retry";

/** The runner's activity, for the watchdog and `status`. Times are those of the clock's `now()`. */
export interface RunnerActivity {
  /** Since when a request waits for its run. */
  readonly pendingSince?: number;
  /** Since when a run is in flight. */
  readonly runningSince?: number;
}

/**
 * Returns the back-off: 0.2 s doubling to 10 s, with up to 10 % jitter so that nodes do not
 * synchronize. Upstream waits a whole syncPeriod (kubernetes/kubernetes#112604).
 */
export function retryBackoff(random: () => number): (attempt: number) => number {
  return (attempt) =>
    Math.round(Math.min(10_000, 200 * 2 ** Math.min(attempt - 1, 16)) * (1 + random() / 10));
}

/**
 * Runs a function at the times that {@linkcode SyncRunnerOptions} allow, after {@linkcode start}.
 */
export class SyncRunner {
  readonly #clock: Clock;
  readonly #options: SyncRunnerOptions;
  readonly #run: () => Promise<RunOutcome>;
  readonly #bucket: TokenBucket;
  #started = false;
  #stopped = false;
  #requestedAt: number | undefined;
  /** Whether a request waits for a token. */
  #waits = false;
  #runningSince: number | undefined;
  #inFlight: Promise<void> | undefined;
  #mustRunAt = Infinity;
  #attempt = 0;
  #timer: Timer | undefined;

  /** `run` is called with no run in flight. Throws a RangeError for contradictory periods. */
  constructor(
    { clock }: { readonly clock: Clock },
    options: SyncRunnerOptions & { readonly run: () => Promise<RunOutcome> },
  ) {
    if (options.maxPeriodMs < options.minPeriodMs) {
      throw new RangeError(
        `Cannot run syncs with a longest period of ${options.maxPeriodMs} ms: ` +
          `it is shorter than the minimum period of ${options.minPeriodMs} ms`,
      );
    }
    this.#clock = clock;
    this.#options = options;
    this.#run = options.run;
    this.#bucket = new TokenBucket({ periodMs: options.minPeriodMs, burst: options.burst ?? 2 });
  }

  get activity(): RunnerActivity {
    return {
      ...(this.#requestedAt !== undefined && { pendingSince: this.#requestedAt }),
      ...(this.#runningSince !== undefined && { runningSince: this.#runningSince }),
    };
  }

  /** Starts the runner; an earlier request runs at once. */
  start(): void {
    if (this.#started) return;
    this.#started = true;
    this.#mustRunAt = this.#clock.now() + this.#options.maxPeriodMs;
    this.#schedule();
  }

  /**
   * Requests a run. Requests before the next run starts are combined. Does nothing once stopped.
   */
  request(): void {
    if (this.#stopped || this.#requestedAt !== undefined) return;
    this.#requestedAt = this.#clock.now();
    this.#schedule();
  }

  /** Stops starting runs, and waits for the one in flight. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#requestedAt = undefined;
    this.#timer?.cancel();
    await this.#inFlight;
  }

  #schedule(): void {
    if (!this.#started || this.#stopped || this.#runningSince !== undefined) return;
    this.#timer?.cancel();
    const now = this.#clock.now();
    const due = this.#requestedAt === undefined ? Math.max(0, this.#mustRunAt - now) : 0;
    const delay = Math.max(due, this.#bucket.waitMs(now));
    if (delay === 0) this.#begin();
    else {
      this.#waits = this.#requestedAt !== undefined;
      this.#timer = this.#clock.setTimer(delay, () => this.#schedule());
    }
  }

  #begin(): void {
    const now = this.#clock.now();
    this.#bucket.take(now, { waited: this.#waits });
    this.#waits = false;
    this.#requestedAt = undefined;
    this.#runningSince = now;
    this.#inFlight = this.#execute();
  }

  async #execute(): Promise<void> {
    let outcome: RunOutcome = "retry";
    try {
      outcome = await this.#run();
    } catch {
      // The function reports its own failures; for the runner an error is only a reason to retry.
    }
    const now = this.#clock.now();
    if (outcome === "unfinished") this.#bucket.runInterrupted(now);
    else this.#bucket.runEnded(now, { unchanged: outcome === "unchanged" });
    this.#runningSince = undefined;
    this.#attempt = outcome === "retry" ? this.#attempt + 1 : 0;
    const wait = outcome === "retry"
      ? this.#options.retryMs(this.#attempt)
      : outcome === "unfinished"
      ? 0
      : Infinity;
    this.#mustRunAt = now + Math.min(wait, this.#options.maxPeriodMs);
    this.#schedule();
  }
}
