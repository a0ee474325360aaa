/**
 * One copy of each string that comes again and again: `JSON.parse` makes a new one each time, and
 * 10,000 times the same namespace or node name is a megabyte.
 *
 * @module
 */

/** More different strings than this are no repetition; the table begins anew. */
const LARGEST = 16_384;

/** Objects of one workload come one after the other in a list: few values have to be known at a time. */
const MOST_VALUES = 1_024;

/** Gives the same string for equal strings. */
export class StringTable {
  #strings = new Map<string, string>();
  #values = new Map<string, unknown>();

  /** The copy that was met first. */
  intern(text: string): string {
    const known = this.#strings.get(text);
    if (known !== undefined) return known;
    if (this.#strings.size >= LARGEST) this.#strings = new Map();
    this.#strings.set(text, text);
    return text;
  }

  /** The same for a whole value, such as the labels that the pods of one workload have. */
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
