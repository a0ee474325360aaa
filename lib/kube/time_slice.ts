/**
 * Keeps long loops from holding up the event loop.
 *
 * @module
 */
import type { Clock } from "../os/clock.ts";

/** Longest synchronous piece of a loop, in milliseconds: half of what is allowed to any code. */
const BUDGET_MS = 5;

/** Says when a loop has run long enough and should let others run. */
export class TimeSlice {
  readonly #clock: Clock;
  #startedAt: number;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#startedAt = clock.now();
  }

  /**
   * A promise to wait for when the time is up, else `undefined`: awaiting nothing 20,000 times would cost
   * more than what the loop does.
   */
  pause(): Promise<void> | undefined {
    if (this.#clock.now() - this.#startedAt < BUDGET_MS) return undefined;
    return this.#clock.yieldToEventLoop().then(() => {
      this.#startedAt = this.#clock.now();
    });
  }
}
