/** Counts the users of items. The cost of a change depends on its own size. */
export class WantedItems<Item extends string> {
  readonly #claims = new Map<Item, number>();
  /** Items changed since the last {@linkcode settle}, and whether they had been applied. */
  readonly #touched = new Map<Item, boolean>();

  /** All desired items, in the order of their first use. */
  get wanted(): Iterable<Item> {
    return this.#claims.keys();
  }

  get size(): number {
    return this.#claims.size;
  }

  has(item: Item): boolean {
    return this.#claims.has(item);
  }

  isApplied(item: Item): boolean {
    return this.#touched.get(item) ?? this.#claims.has(item);
  }

  /** Adds a user of an item. */
  claim(item: Item): void {
    this.#touch(item);
    this.#claims.set(item, (this.#claims.get(item) ?? 0) + 1);
  }

  /** Removes a user of an item. */
  release(item: Item): void {
    const count = this.#claims.get(item);
    if (count === undefined) throw new Error(`Cannot release '${item}': it is not wanted`);
    this.#touch(item);
    if (count === 1) this.#claims.delete(item);
    else this.#claims.set(item, count - 1);
  }

  /** Desired items that are not applied. */
  get missing(): Item[] {
    const found: Item[] = [];
    for (const [item, was] of this.#touched) if (!was && this.#claims.has(item)) found.push(item);
    return found;
  }

  /** Applied items that are not desired. */
  get stale(): Item[] {
    const found: Item[] = [];
    for (const [item, was] of this.#touched) if (was && !this.#claims.has(item)) found.push(item);
    return found;
  }

  /** Records that the wanted items were applied. */
  settle(): void {
    this.#touched.clear();
  }

  /** Replaces the applied items. Walks over all items. */
  adopt(applied: ReadonlySet<Item>): void {
    this.#touched.clear();
    for (const item of this.#claims.keys()) {
      if (!applied.has(item)) this.#touched.set(item, false);
    }
    for (const item of applied) if (!this.#claims.has(item)) this.#touched.set(item, true);
  }

  /** All applied items. Walks over all items. */
  applied(): Set<Item> {
    const all = new Set<Item>();
    for (const item of this.#claims.keys()) if (this.isApplied(item)) all.add(item);
    for (const item of this.stale) all.add(item);
    return all;
  }

  #touch(item: Item): void {
    if (!this.#touched.has(item)) this.#touched.set(item, this.#claims.has(item));
  }
}
