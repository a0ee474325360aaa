/**
 * Waits after failures: longer each time, with jitter, so that the nodes of a cluster do not all
 * return at once.
 *
 * @module
 */
import type { Clock } from "./clock.ts";

/** Settings of a {@linkcode Backoff}; the defaults are those of Kubernetes' own clients. */
export interface BackoffOptions {
  /** The first wait, before jitter. @default {800} */
  readonly initialMs?: number;
  /** The longest wait, before jitter. @default {30000} */
  readonly maxMs?: number;
  /** After this time without a failure, the next wait is the first one again. @default {120000} */
  readonly resetAfterMs?: number;
}

/** Doubling waits with up to 100 % of jitter on top. */
export class Backoff {
  #nextMs: number;
  #lastFailureAt = -Infinity;
  #abort: AbortController | undefined;

  /** `random` returns numbers from 0 to just below 1. */
  constructor(
    private readonly random: () => number,
    private readonly options: BackoffOptions = {},
  ) {
    this.#nextMs = options.initialMs ?? 800;
  }

  /** Records a failure at `now` and returns the wait after it in milliseconds. */
  next(now: number): number {
    const { initialMs = 800, maxMs = 30_000, resetAfterMs = 120_000 } = this.options;
    if (now - this.#lastFailureAt >= resetAfterMs) this.#nextMs = initialMs;
    this.#lastFailureAt = now;
    const base = this.#nextMs;
    this.#nextMs = Math.min(maxMs, base * 2);
    return base * (1 + this.random());
  }

  /** Waits for it. Does not reject. */
  async pause(clock: Clock): Promise<void> {
    const abort = this.#abort = new AbortController();
    await clock.sleep(this.next(clock.now()), abort.signal).catch(() => {});
    this.#abort = undefined;
  }

  /** Ends a running pause. */
  cancel(): void {
    this.#abort?.abort();
  }
}

/** The pauses of a loop whose socket keeps failing. */
export function socketBackoff(): Backoff {
  return new Backoff(() => 0, { initialMs: 5, maxMs: 250 });
}
