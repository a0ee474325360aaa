/**
 * Time. The only file that reads a clock or sets a timer.
 *
 * @module
 */

/** A timer that can be cancelled. */
export interface Timer {
  cancel(): void;
}

/** The clock of all code below `main.ts`. */
export interface Clock {
  /** Monotonic milliseconds, unrelated to the time of day. */
  now(): number;
  /** Milliseconds since 1970. */
  wallNow(): number;
  /** Calls back once after `ms`. */
  setTimer(ms: number, callback: () => void): Timer;
  /** Resolves after `ms`, or rejects with the signal's reason. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
  /** Resolves after other tasks of the event loop had their turn, about 2 ms of it. */
  yieldToEventLoop(): Promise<void>;
  /**
   * Resolves after one turn of the event loop, 0.1 ms if nothing else waits. For work that the node
   * waits for: what people and scrapers ask for leaves more time to others.
   */
  nextTurn(): Promise<void>;
}

/**
 * Longest time of a timer, nearly 25 days: a longer one does not fit into 32 bits and would fire at
 * once.
 */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** The machine's clock. Timers of more than 25 days fire after 25 days. */
export const systemClock: Clock = {
  now: () => performance.now(),
  wallNow: () => Date.now(),
  setTimer(ms, callback) {
    const id = setTimeout(callback, Math.min(ms, LONGEST_TIMER_MS));
    return { cancel: () => clearTimeout(id) };
  },
  sleep(ms, signal) {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason);
      const onAbort = () => {
        clearTimeout(id);
        reject(signal!.reason);
      };
      const id = setTimeout(() => {
        signal?.removeEventListener("abort", onAbort);
        resolve();
      }, Math.min(ms, LONGEST_TIMER_MS));
      signal?.addEventListener("abort", onAbort, { once: true });
    });
  },
  yieldToEventLoop() {
    return new Promise((resolve) => setTimeout(resolve, 0));
  },
  async nextTurn() {
    // A job of the thread pool, because its end comes through the same queue as sockets and timers:
    // in Deno 2.9 a timer of 0 ms takes 2 ms, in which a long computation would stand still, and
    // setImmediate or a MessageChannel go on before any socket has had its turn.
    await crypto.subtle.digest("SHA-256", NO_BYTES);
  },
};

const NO_BYTES = new Uint8Array();
