/** Items in order. Adding and removing costs a binary search. */
export class SortedList<Item> {
  readonly #compare: (left: Item, right: Item) => number;
  readonly #items: Item[] = [];

  constructor(compare: (left: Item, right: Item) => number) {
    this.#compare = compare;
  }

  /** The items; valid until the next change. */
  get items(): readonly Item[] {
    return this.#items;
  }

  /** The smallest item. */
  get first(): Item | undefined {
    return this.#items[0];
  }

  /** Adds an item. Replaces the one that compares as equal. */
  add(item: Item): void {
    const index = this.indexOf(item);
    const isKnown = index < this.#items.length && this.#compare(this.#items[index]!, item) === 0;
    this.#items.splice(index, isKnown ? 1 : 0, item);
  }

  /** Removes the item that compares as equal. Does nothing if no such item exists. */
  delete(item: Item): void {
    const index = this.indexOf(item);
    const found = this.#items[index];
    if (found !== undefined && this.#compare(found, item) === 0) this.#items.splice(index, 1);
  }

  /** The place of the first item that is not smaller than this one. */
  indexOf(item: Item): number {
    let [low, high] = [0, this.#items.length];
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.#compare(this.#items[middle]!, item) < 0) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
