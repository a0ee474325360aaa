/**
 * Shares one copy of each repeated string: `JSON.parse` creates a new one each time, and 10,000
 * copies of a namespace or node name take a megabyte.
 *
 * @module
 */

/** With more different strings than this, sharing is useless, and the table is cleared. */
const LARGEST = 16_384;

/** Returns the same string for equal strings. */
export class StringTable {
  #strings = new Map<string, string>();

  /** Returns the first copy. */
  intern(text: string): string {
    const known = this.#strings.get(text);
    if (known !== undefined) return known;
    if (this.#strings.size >= LARGEST) this.#strings = new Map();
    this.#strings.set(text, text);
    return text;
  }
}
