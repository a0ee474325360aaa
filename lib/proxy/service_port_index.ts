import type { ServicePortKey } from "./service_port_name.ts";

/** The ServicePorts of each item, in the order in which they were added. */
export class ServicePortIndex<Item extends string, Key extends string = ServicePortKey> {
  // Almost always one each: a Set for each of 10,000 items would take megabytes.
  readonly #entries = new Map<Item, Key | Set<Key>>();

  /** Every item with a ServicePort. */
  get items(): IterableIterator<Item> {
    return this.#entries.keys();
  }

  add(item: Item, key: Key): void {
    const entry = this.#entries.get(item);
    if (entry === undefined || entry === key) this.#entries.set(item, key);
    else if (typeof entry === "string") this.#entries.set(item, new Set([entry, key]));
    else entry.add(key);
  }

  delete(item: Item, key: Key): void {
    const entry = this.#entries.get(item);
    if (entry === key) this.#entries.delete(item);
    if (!(entry instanceof Set)) return;
    entry.delete(key);
    const [only] = entry;
    if (entry.size === 1 && only !== undefined) this.#entries.set(item, only);
  }

  has(item: Item): boolean {
    return this.#entries.has(item);
  }

  /** The first ServicePort of an item; `undefined` = none. */
  first(item: Item): Key | undefined {
    const entry = this.#entries.get(item);
    if (!(entry instanceof Set)) return entry;
    const [first] = entry;
    return first;
  }

  /** The ServicePorts of an item. */
  get(item: Item): readonly Key[] {
    const entry = this.#entries.get(item);
    return entry === undefined ? [] : entry instanceof Set ? [...entry] : [entry];
  }
}
