/**
 * Measures how late timers fire, which is the time for which the event loop was blocked.
 *
 * @module
 */
import type { Clock } from "../../os/clock.ts";

/** Time between two checks. A stall is noticed if a check falls into it, so long ones always are. */
const PERIOD_MS = 20;
/** The time for which it keeps checking after the last sign of work. */
const WATCH_MS = 5000;

/**
 * Checks while there is work, and sleeps otherwise: 50 checks a second would be most of the CPU time of
 * an idle node.
 */
export class EventLoopMonitor {
  readonly #clock: Clock;
  #watchUntil = 0;
  #largestMs = 0;
  #work = Promise.withResolvers<void>();

  constructor({ clock }: { readonly clock: Clock }) {
    this.#clock = clock;
  }

  /** The longest time since the start for which the event loop was blocked, in milliseconds. */
  get largestMs(): number {
    return this.#largestMs;
  }

  /** Announces work that may keep the event loop busy, now or in the next seconds. */
  expectWork(): void {
    this.#watchUntil = this.#clock.now() + WATCH_MS;
    this.#work.resolve();
  }

  /** Measures until the signal is aborted. */
  async run(signal: AbortSignal): Promise<void> {
    const wake = () => this.#work.resolve();
    signal.addEventListener("abort", wake, { once: true });
    while (!signal.aborted) {
      await this.#work.promise;
      await this.#watch(signal);
      this.#work = Promise.withResolvers();
      if (signal.aborted) this.#work.resolve();
    }
    signal.removeEventListener("abort", wake);
  }

  async #watch(signal: AbortSignal): Promise<void> {
    const clock = this.#clock;
    let before = clock.now();
    while (!signal.aborted && before < this.#watchUntil) {
      await clock.sleep(PERIOD_MS, signal).catch(() => {});
      const now = clock.now();
      if (!signal.aborted) this.#largestMs = Math.max(this.#largestMs, now - before - PERIOD_MS);
      before = now;
    }
  }
}
