/** The state of an item in a {@linkcode PriorityHeap}. */
export interface HeapItem {
  /** The lowest is first. */
  priority: number;
  /** Decides between equal priorities. */
  turn: number;
  /** Only the heap writes it. */
  index: number;
}

/** A binary heap whose items know their place, so that one can move without a search. */
export class PriorityHeap<T extends HeapItem> {
  readonly #items: T[];

  constructor(items: readonly T[]) {
    this.#items = items.toSorted((left, right) => isBefore(left, right) ? -1 : 1);
    for (const [index, item] of this.#items.entries()) item.index = index;
  }

  get first(): T | undefined {
    return this.#items[0];
  }

  add(item: T): void {
    item.index = this.#items.length;
    this.#items.push(item);
    this.moved(item);
  }

  /** Takes out an item that is in the heap. */
  delete(item: T): void {
    const last = this.#items.pop();
    if (last === undefined || last === item) return;
    this.#items[item.index] = last;
    last.index = item.index;
    this.moved(last);
  }

  /** Restores the order after the priority or turn of an item changed. */
  moved(item: T): void {
    const items = this.#items;
    let { index } = item;
    for (; index > 0; index = item.index) {
      const parent = items[(index - 1) >> 1]!;
      if (!isBefore(item, parent)) break;
      this.#swap(item, parent);
    }
    for (;;) {
      const left = items[2 * item.index + 1];
      const right = items[2 * item.index + 2];
      const child = left && right && isBefore(right, left) ? right : left;
      if (child === undefined || !isBefore(child, item)) return;
      this.#swap(child, item);
    }
  }

  #swap(left: T, right: T): void {
    const { index } = left;
    left.index = right.index;
    right.index = index;
    this.#items[left.index] = left;
    this.#items[right.index] = right;
  }
}

function isBefore(left: HeapItem, right: HeapItem): boolean {
  return left.priority < right.priority ||
    (left.priority === right.priority && left.turn < right.turn);
}
