import type { Clock, Timer } from "../../lib/os/clock.ts";
import { type RecencyItem, RecencyList } from "./recency_list.ts";

/** Settings of an {@linkcode ExpiryQueue}. */
interface ExpiryQueueOptions<T> {
  /** Maximum time without use. */
  ttlMs: number;
  /** Called for each item that went unused so long, after it was taken out. */
  readonly onExpired: (item: T) => void;
}

/** Items that expire do so at most this late: the timer is set for several at once. */
const GRAIN_MS = 10;
/** Items that may expire in one turn of the event loop. */
const MAX_EXPIRED_PER_TURN = 256;

/**
 * Items with the same time-out, sorted by its end, and one timer for the first.
 *
 * A timer for each item would cost as much as a socket operation (7 µs of CPU for each dial). The
 * timer stays set when its item is removed, since the next item usually arrives before it fires.
 */
export class ExpiryQueue<T extends RecencyItem<T>> {
  readonly #clock: Clock;
  readonly #options: ExpiryQueueOptions<T>;
  readonly #items = new RecencyList<T>();
  #timer: Timer | undefined;

  constructor(clock: Clock, options: ExpiryQueueOptions<T>) {
    this.#clock = clock;
    this.#options = { ...options };
  }

  get ttlMs(): number {
    return this.#options.ttlMs;
  }

  get size(): number {
    return this.#items.size;
  }

  /** The item that expires first. */
  get oldest(): T | undefined {
    return this.#items.oldest;
  }

  /** Changes the maximum time without use; items beyond it expire at once. */
  expireAfter(ttlMs: number): void {
    this.#options.ttlMs = ttlMs;
    this.close();
    this.#expire();
  }

  /** Takes in an item that is in no queue; its time begins now. */
  add(item: T, now: number): void {
    this.#items.add(item, now);
    this.#timer ??= this.#clock.setTimer(this.#options.ttlMs + GRAIN_MS, () => this.#expire());
  }

  /** Restarts the time-out of an item. */
  touch(item: T, now: number): void {
    this.#items.touch(item, now);
  }

  delete(item: T): void {
    this.#items.delete(item);
  }

  /** Stops the timer. Items that are still in the queue do not expire any more. */
  close(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  /** The items, first to expire first. The current one may be deleted during iteration. */
  [Symbol.iterator](): IterableIterator<T> {
    return this.#items[Symbol.iterator]();
  }

  #expire(): void {
    const now = this.#clock.now();
    const before = now - this.#options.ttlMs;
    this.#timer = undefined;
    for (let count = 0; count < MAX_EXPIRED_PER_TURN; count++) {
      const item = this.#items.oldest;
      if (!item || item.usedAt > before) break;
      this.#items.delete(item);
      this.#options.onExpired(item);
    }
    this.close();
    const next = this.#items.oldest;
    if (!next) return;
    const wait = Math.max(0, next.usedAt - before);
    this.#timer = this.#clock.setTimer(wait + GRAIN_MS, () => this.#expire());
  }
}
