/**
 * Shares one copy of each repeated string: `JSON.parse` creates a new one each time, and 10,000
 * copies of a namespace or node name take a megabyte.
 *
 * @module
 */

/** With more different strings than this, sharing is useless, and the table is cleared. */
const LARGEST = 16_384;

/** The objects of one workload are adjacent in a list: a few known values are enough at a time. */
const MOST_VALUES = 1_024;

/** Returns the same string for equal strings. */
export class StringTable {
  #strings = new Map<string, string>();
  #values = new Map<string, unknown>();

  /** Returns the first copy. */
  intern(text: string): string {
    const known = this.#strings.get(text);
    if (known !== undefined) return known;
    if (this.#strings.size >= LARGEST) this.#strings = new Map();
    this.#strings.set(text, text);
    return text;
  }

  /** Returns the same object for equal values, such as the labels of the pods of one workload. */
  share(value: unknown): unknown {
    if (value === undefined) return value;
    const text = JSON.stringify(value);
    const known = this.#values.get(text);
    if (known !== undefined) return known;
    if (this.#values.size >= MOST_VALUES) this.#values = new Map();
    this.#values.set(text, value);
    return value;
  }
}
