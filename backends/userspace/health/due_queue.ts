import type { Clock, Timer } from "../../../lib/os/clock.ts";
import { type HeapItem, PriorityHeap } from "../balancing/priority_heap.ts";

/** An item that is due at its priority, by the clock. */
export interface DueItem extends HeapItem {
  /** Only the queue writes it. */
  isQueued: boolean;
}

/** Time between two turns, and so the longest delay of an item. */
const GRAIN_MS = 20;
/** Items of one turn, so that a long stall blocks nothing. */
const MOST_PER_TURN = 1000;

/** Items in the order in which they are due, with one timer for the first. */
export class DueQueue<T extends DueItem> {
  readonly #clock: Clock;
  readonly #onDue: (item: T) => void;
  readonly #heap = new PriorityHeap<T>([]);
  #timer: { readonly at: number; readonly timer: Timer } | undefined;
  #isClosed = false;

  constructor(clock: Clock, onDue: (item: T) => void) {
    this.#clock = clock;
    this.#onDue = onDue;
  }

  /** Adds an item, or changes when it is due: in another turn of the event loop at the earliest. */
  set(item: T, at: number): void {
    item.priority = Math.max(at, this.#clock.now() + 1);
    if (item.isQueued) this.#heap.moved(item);
    else {
      item.isQueued = true;
      this.#heap.add(item);
    }
    this.#schedule();
  }

  delete(item: T): void {
    if (!item.isQueued) return;
    item.isQueued = false;
    this.#heap.delete(item);
  }

  /** Nothing is due any more. */
  close(): void {
    this.#isClosed = true;
    this.#timer?.timer.cancel();
  }

  #turn(): void {
    this.#timer = undefined;
    const now = this.#clock.now();
    for (let count = 0; count < MOST_PER_TURN; count++) {
      const { first } = this.#heap;
      if (first === undefined || first.priority > now) break;
      this.delete(first);
      this.#onDue(first);
    }
    this.#schedule();
  }

  #schedule(): void {
    const { first } = this.#heap;
    if (first === undefined || this.#isClosed) return;
    const now = this.#clock.now();
    const at = Math.max(first.priority, now + GRAIN_MS);
    if (this.#timer !== undefined) {
      if (this.#timer.at <= at) return;
      this.#timer.timer.cancel();
    }
    this.#timer = { at, timer: this.#clock.setTimer(at - now, () => this.#turn()) };
  }
}
