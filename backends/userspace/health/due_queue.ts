import type { Clock, Timer } from "../../../lib/os/clock.ts";

/** An item that may be due. Only the queue writes to it. */
export interface DueItem {
  dueAt: number;
  /** Its place in the queue; `undefined` = it is not queued. */
  place: number | undefined;
}

/** Time between two turns, and so the longest delay of an item. */
const GRAIN_MS = 20;
/** Items of one turn, so that a long stall blocks nothing. */
const MOST_PER_TURN = 1000;

/**
 * Items in the order in which they are due, with one timer for the first. A binary heap whose items know
 * their place, so that one can move without a search.
 */
export class DueQueue<T extends DueItem> {
  readonly #clock: Clock;
  readonly #onDue: (item: T) => void;
  readonly #heap: T[] = [];
  #timer: { readonly at: number; readonly timer: Timer } | undefined;
  #isClosed = false;

  constructor(clock: Clock, onDue: (item: T) => void) {
    this.#clock = clock;
    this.#onDue = onDue;
  }

  /** Adds an item, or changes when it is due: in another turn of the event loop at the earliest. */
  set(item: T, at: number): void {
    item.dueAt = Math.max(at, this.#clock.now() + 1);
    if (item.place === undefined) this.#put(item, this.#heap.length);
    this.#moved(item);
    this.#schedule();
  }

  delete(item: T): void {
    const { place } = item;
    if (place === undefined) return;
    item.place = undefined;
    const last = this.#heap.pop()!;
    if (last === item) return;
    this.#put(last, place);
    this.#moved(last);
  }

  /** Nothing is due any more. */
  close(): void {
    this.#isClosed = true;
    this.#timer?.timer.cancel();
  }

  #put(item: T, place: number): void {
    this.#heap[place] = item;
    item.place = place;
  }

  /** Restores the order after an item has come, or its time has changed. */
  #moved(item: T): void {
    for (let place = item.place!; place > 0; place = item.place!) {
      const parent = this.#heap[(place - 1) >> 1]!;
      if (parent.dueAt <= item.dueAt) break;
      this.#swap(item, parent);
    }
    for (;;) {
      const left = this.#heap[2 * item.place! + 1];
      const right = this.#heap[2 * item.place! + 2];
      const child = left && right && right.dueAt < left.dueAt ? right : left;
      if (child === undefined || child.dueAt >= item.dueAt) return;
      this.#swap(child, item);
    }
  }

  #swap(one: T, other: T): void {
    const place = one.place!;
    this.#put(one, other.place!);
    this.#put(other, place);
  }

  #turn(): void {
    this.#timer = undefined;
    const now = this.#clock.now();
    for (let count = 0; count < MOST_PER_TURN; count++) {
      const [first] = this.#heap;
      if (first === undefined || first.dueAt > now) break;
      this.delete(first);
      this.#onDue(first);
    }
    this.#schedule();
  }

  #schedule(): void {
    const [first] = this.#heap;
    if (first === undefined || this.#isClosed) return;
    const now = this.#clock.now();
    const at = Math.max(first.dueAt, now + GRAIN_MS);
    if (this.#timer !== undefined) {
      if (this.#timer.at <= at) return;
      this.#timer.timer.cancel();
    }
    this.#timer = { at, timer: this.#clock.setTimer(at - now, () => this.#turn()) };
  }
}
