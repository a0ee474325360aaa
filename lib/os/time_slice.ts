import type { Clock } from "./clock.ts";

/**
 * Longest synchronous part of a loop, milliseconds. Nothing may block the event loop for more than
 * 10 ms, and two loops may run in direct succession.
 */
const BUDGET_MS = 4;

type SliceClock = Pick<Clock, "now" | "yieldToEventLoop">;

/** The clock for slices of work that the node waits for; see {@linkcode Clock.nextTurn}. */
export function urgent(clock: Pick<Clock, "now" | "nextTurn">): SliceClock {
  return { now: () => clock.now(), yieldToEventLoop: () => clock.nextTurn() };
}

/** Limits the time for which a loop blocks the event loop. Loops that share a slice take turns. */
export class TimeSlice {
  readonly #clock: SliceClock;
  #startedAt: number;
  /** The last waiting loop: each turn of the event loop resumes one. */
  #waiting = Promise.resolve();

  constructor(clock: SliceClock) {
    this.#clock = clock;
    this.#startedAt = clock.now();
  }

  /**
   * Returns a promise to await when the time is up, else `undefined`, because awaiting nothing
   * 20,000 times would cost more than the loop's work.
   */
  pause(): Promise<void> | undefined {
    if (this.#clock.now() - this.#startedAt < BUDGET_MS) return undefined;
    this.#waiting = this.#waiting.then(() => this.#clock.yieldToEventLoop()).then(() => {
      this.#startedAt = this.#clock.now();
    });
    return this.#waiting;
  }
}

/**
 * Visits every item; other tasks run in between. Rejects with the reason of the signal if it is
 * aborted before the end.
 */
export async function forEachInSlices<T>(
  clock: SliceClock,
  items: Iterable<T>,
  visit: (item: T) => void,
  signal?: AbortSignal,
): Promise<void> {
  const slice = new TimeSlice(clock);
  for (const item of items) {
    visit(item);
    const turn = slice.pause();
    if (!turn) continue;
    await turn;
    signal?.throwIfAborted();
  }
}

/**
 * Runs steps to their end and returns their result; other tasks run in between. Rejects with the
 * reason of the signal if it is aborted before the end; the steps must not be needed then.
 */
export async function runInSlices<T>(
  clock: SliceClock,
  steps: Iterator<void, T>,
  signal?: AbortSignal,
): Promise<T> {
  const slice = new TimeSlice(clock);
  for (;;) {
    const { done, value } = steps.next();
    if (done) return value;
    const turn = slice.pause();
    if (!turn) continue;
    await turn;
    signal?.throwIfAborted();
  }
}
