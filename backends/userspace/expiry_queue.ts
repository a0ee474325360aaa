import type { Clock, Timer } from "../../lib/os/clock.ts";

/** The state of an item in an {@linkcode ExpiryQueue}; only the queue writes it. */
export interface RecencyItem<T> {
  older: T | undefined;
  newer: T | undefined;
  /** The time of the last use. */
  usedAt: number;
}

/** Items that expire do so at most this late: the timer is set for several at once. */
const GRAIN_MS = 10;
/** Items that may expire in one turn of the event loop. */
const MAX_EXPIRED_PER_TURN = 256;

/**
 * Items with the same time-out from the longest unused to the last used, and one timer for the first.
 *
 * They are doubly linked through the items themselves: a `Map` with delete and set keeps the same order,
 * but costs a hash and a growing table for each datagram. A timer for each item would cost as much as a
 * socket operation (7 µs of CPU for each dial). The timer stays set when its item is removed, since the
 * next item usually arrives before it fires.
 */
export class ExpiryQueue<T extends RecencyItem<T>> {
  readonly #clock: Clock;
  readonly #onExpired: (item: T) => void;
  #ttlMs: number;
  #oldest: T | undefined;
  #newest: T | undefined;
  #size = 0;
  #timer: Timer | undefined;

  /** `onExpired` is called for each item that went unused for `ttlMs`, after it was taken out. */
  constructor(clock: Clock, ttlMs: number, onExpired: (item: T) => void) {
    this.#clock = clock;
    this.#ttlMs = ttlMs;
    this.#onExpired = onExpired;
  }

  get ttlMs(): number {
    return this.#ttlMs;
  }

  get size(): number {
    return this.#size;
  }

  /** The item that expires first. */
  get oldest(): T | undefined {
    return this.#oldest;
  }

  /** Changes the maximum time without use; items beyond it expire at once. */
  expireAfter(ttlMs: number): void {
    this.#ttlMs = ttlMs;
    this.#expire();
  }

  /** Takes in an item that is in no queue; its time begins now. */
  add(item: T, now: number): void {
    item.usedAt = now;
    item.older = this.#newest;
    item.newer = undefined;
    if (this.#newest) this.#newest.newer = item;
    else this.#oldest = item;
    this.#newest = item;
    this.#size++;
    if (this.#timer === undefined) this.#wait(this.#ttlMs);
  }

  /** Restarts the time-out of an item. `now` never decreases. */
  touch(item: T, now: number): void {
    item.usedAt = now;
    // The newest, or one that was taken out between its use and this call.
    if (item.newer === undefined) return;
    this.delete(item);
    this.add(item, now);
  }

  /** Takes out an item, if it is here. */
  delete(item: T): void {
    if (item.older) item.older.newer = item.newer;
    else if (this.#oldest === item) this.#oldest = item.newer;
    else return;
    if (item.newer) item.newer.older = item.older;
    else this.#newest = item.older;
    item.older = undefined;
    item.newer = undefined;
    this.#size--;
  }

  /** Stops the timer. Items that are still in the queue do not expire any more. */
  close(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  /**
   * The items, first to expire first. During iteration the current one may be deleted. It may not be
   * touched: that moves it to the end, so the iteration would never end. A copy allows both.
   */
  *[Symbol.iterator](): IterableIterator<T> {
    let item = this.#oldest;
    while (item) {
      const next: T | undefined = item.newer;
      yield item;
      item = next;
    }
  }

  #wait(ms: number): void {
    if (ms === Infinity) return;
    this.#timer = this.#clock.setTimer(ms + GRAIN_MS, () => this.#expire());
  }

  #expire(): void {
    const before = this.#clock.now() - this.#ttlMs;
    for (let count = 0; count < MAX_EXPIRED_PER_TURN; count++) {
      const item = this.#oldest;
      if (!item || item.usedAt > before) break;
      this.delete(item);
      this.#onExpired(item);
    }
    this.close();
    if (this.#oldest) this.#wait(Math.max(0, this.#oldest.usedAt - before));
  }
}
