/** Sets of values by key. A key without values is forgotten. */
export class SetIndex<Key, Value> {
  readonly #sets = new Map<Key, Set<Value>>();

  /** The keys that have values. */
  keys(): IterableIterator<Key> {
    return this.#sets.keys();
  }

  has(key: Key): boolean {
    return this.#sets.has(key);
  }

  /** The values of a key. */
  at(key: Key): Iterable<Value> {
    return this.#sets.get(key) ?? [];
  }

  add(key: Key, value: Value): void {
    this.#sets.getOrInsertComputed(key, () => new Set()).add(value);
  }

  delete(key: Key, value: Value): void {
    const values = this.#sets.get(key);
    values?.delete(value);
    if (values?.size === 0) this.#sets.delete(key);
  }

  /** Files a value under other keys than before. */
  move(
    value: Value,
    { from, to }: { readonly from: Iterable<Key>; readonly to: Iterable<Key> },
  ): void {
    for (const key of from) this.delete(key, value);
    for (const key of to) this.add(key, value);
  }
}
