/**
 * Keeps long loops from holding up the event loop.
 *
 * @module
 */
import type { Clock } from "./clock.ts";

/**
 * Longest synchronous piece of a loop, milliseconds. Nothing may hold up the event loop for more than
 * 10 ms, and two loops may have their turns one right after the other.
 */
const BUDGET_MS = 4;

type SliceClock = Pick<Clock, "now" | "yieldToEventLoop">;

/** Says when a loop has run long enough and should let others run. Loops that share one take turns. */
export class TimeSlice {
  readonly #clock: SliceClock;
  #startedAt: number;
  /** The last of those that wait: one is let on in each turn of the event loop. */
  #waiting = Promise.resolve();

  constructor(clock: SliceClock) {
    this.#clock = clock;
    this.#startedAt = clock.now();
  }

  /**
   * A promise to wait for when the time is up, else `undefined`: awaiting nothing 20,000 times would cost
   * more than what the loop does.
   */
  pause(): Promise<void> | undefined {
    if (this.#clock.now() - this.#startedAt < BUDGET_MS) return undefined;
    this.#waiting = this.#waiting.then(() => this.#clock.yieldToEventLoop()).then(() => {
      this.#startedAt = this.#clock.now();
    });
    return this.#waiting;
  }
}

/** Visits every item; other tasks run in between. */
export async function forEachInSlices<T>(
  clock: SliceClock,
  items: Iterable<T>,
  visit: (item: T) => void,
): Promise<void> {
  const slice = new TimeSlice(clock);
  for (const item of items) {
    visit(item);
    const turn = slice.pause();
    if (turn) await turn;
  }
}
