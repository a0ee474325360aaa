/** The state of an item in a {@linkcode RecencyList}; only the list writes it. */
export interface RecencyItem<T> {
  older: T | undefined;
  newer: T | undefined;
  /** The time of the last use, by the caller's clock. */
  usedAt: number;
}

/**
 * Items from the longest unused to the last used, doubly linked through the items themselves.
 *
 * A `Map` with delete and set keeps the same order, but costs a hash and a growing table for each
 * datagram; moving a link costs four assignments and no memory.
 */
export class RecencyList<T extends RecencyItem<T>> {
  #oldest: T | undefined;
  #newest: T | undefined;
  #size = 0;

  get size(): number {
    return this.#size;
  }

  /** The item that was not used for longest. */
  get oldest(): T | undefined {
    return this.#oldest;
  }

  /** Takes in an item that is in no list. */
  add(item: T, now: number): void {
    item.usedAt = now;
    item.older = this.#newest;
    item.newer = undefined;
    if (this.#newest) this.#newest.newer = item;
    else this.#oldest = item;
    this.#newest = item;
    this.#size++;
  }

  /** Marks an item as the last used. `now` never decreases. */
  touch(item: T, now: number): void {
    item.usedAt = now;
    // The newest, or one that was taken out between its use and this call.
    if (item.newer === undefined) return;
    this.delete(item);
    this.add(item, now);
  }

  /** Takes out an item of this list. */
  delete(item: T): void {
    if (item.older) item.older.newer = item.newer;
    else this.#oldest = item.newer;
    if (item.newer) item.newer.older = item.older;
    else this.#newest = item.older;
    item.older = undefined;
    item.newer = undefined;
    this.#size--;
  }

  /** The items, longest unused first. The current one may be deleted during iteration. */
  *[Symbol.iterator](): IterableIterator<T> {
    let item = this.#oldest;
    while (item) {
      const next: T | undefined = item.newer;
      yield item;
      item = next;
    }
  }
}
