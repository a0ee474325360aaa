/** Sets of values by key, each in the order in which its values were added. A key without values is forgotten. */
export class SetIndex<Key, Value> {
  // Almost always one value: a Set for each of 10,000 keys would take megabytes.
  readonly #entries = new Map<Key, Value | Set<Value>>();

  /** The keys that have values. */
  keys(): IterableIterator<Key> {
    return this.#entries.keys();
  }

  has(key: Key): boolean {
    return this.#entries.has(key);
  }

  /** The values of a key. */
  at(key: Key): Iterable<Value> {
    const entry = this.#entries.get(key);
    return entry === undefined ? [] : entry instanceof Set ? entry : [entry];
  }

  /** The first value of a key; `undefined` = none. */
  first(key: Key): Value | undefined {
    const [first] = this.at(key);
    return first;
  }

  add(key: Key, value: Value): void {
    const entry = this.#entries.get(key);
    if (entry instanceof Set) entry.add(value);
    else if (entry === undefined || entry === value) this.#entries.set(key, value);
    else this.#entries.set(key, new Set([entry, value]));
  }

  delete(key: Key, value: Value): void {
    const entry = this.#entries.get(key);
    if (entry === value) this.#entries.delete(key);
    if (!(entry instanceof Set)) return;
    entry.delete(value);
    const [only] = entry;
    if (entry.size === 1 && only !== undefined) this.#entries.set(key, only);
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
