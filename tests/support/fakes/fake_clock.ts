/** A clock that stands still until a test moves it. */
import type { Clock, Timer } from "../../../lib/os/clock.ts";

/** A {@linkcode Clock} whose time passes only in {@linkcode advance}. */
export class FakeClock implements Clock {
  #now = 0;
  #sequence = 0;
  readonly #timers = new Map<number, { at: number; callback: () => void }>();
  #wallStart: number;

  constructor(wallStart = Date.UTC(2026, 0, 1)) {
    this.#wallStart = wallStart;
  }

  now(): number {
    return this.#now;
  }

  wallNow(): number {
    return this.#wallStart + this.#now;
  }

  /** Timers that have not fired. */
  get pendingTimers(): number {
    return this.#timers.size;
  }

  setTimer(ms: number, callback: () => void): Timer {
    const id = ++this.#sequence;
    this.#timers.set(id, { at: this.#now + Math.max(0, ms), callback });
    return { cancel: () => void this.#timers.delete(id) };
  }

  sleep(ms: number, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason);
      const onAbort = () => {
        timer.cancel();
        reject(signal!.reason);
      };
      const timer = this.setTimer(ms, () => {
        signal?.removeEventListener("abort", onAbort);
        resolve();
      });
      signal?.addEventListener("abort", onAbort, { once: true });
    });
  }

  async yieldToEventLoop(): Promise<void> {
    await settle();
  }

  nextTurn(): Promise<void> {
    return this.yieldToEventLoop();
  }

  /** Sets the time of day forward, or back, as an admin or NTP does; no time passes. */
  jump(ms: number): void {
    this.#wallStart += ms;
  }

  /** Lets `ms` pass in which nothing runs: what falls due meanwhile is late. */
  stall(ms: number): void {
    this.#now += ms;
  }

  /** Lets `ms` pass: fires what is due in order, and lets promises settle after each. */
  async advance(ms: number): Promise<void> {
    await settle();
    const target = this.#now + ms;
    for (;;) {
      let due: [number, { at: number; callback: () => void }] | undefined;
      // Of several at one time the first comes first: they are in the order of their numbers.
      for (const each of this.#timers) if (each[1].at < (due?.[1].at ?? Infinity)) due = each;
      if (!due || due[1].at > target) break;
      const [id, timer] = due;
      this.#timers.delete(id);
      this.#now = Math.max(this.#now, timer.at);
      timer.callback();
      await settle();
    }
    this.#now = target;
    await settle();
  }
}

/** Lets every promise that can settle without time passing do so. */
export async function settle(): Promise<void> {
  for (let turn = 0; turn < 20; turn++) await Promise.resolve();
}
