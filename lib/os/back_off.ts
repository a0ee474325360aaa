import type { Clock } from "./clock.ts";

/** The first and the longest pause. */
const FIRST_PAUSE_MS = 5;
const LAST_PAUSE_MS = 250;

/** Pauses of one loop that grow while it keeps failing. */
export class BackOff {
  readonly #clock: Clock;
  #pauseMs = 0;
  #abort: AbortController | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Waits twice as long as the last time. Does not reject. */
  async pause(): Promise<void> {
    this.#pauseMs = Math.min(Math.max(this.#pauseMs * 2, FIRST_PAUSE_MS), LAST_PAUSE_MS);
    const abort = this.#abort = new AbortController();
    await this.#clock.sleep(this.#pauseMs, abort.signal).catch(() => {});
    this.#abort = undefined;
  }

  /** Ends a running pause. */
  cancel(): void {
    this.#abort?.abort();
  }
}
