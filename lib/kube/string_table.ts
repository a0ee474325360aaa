/**
 * One copy of each string that comes again and again: `JSON.parse` makes a new one each time, and
 * 10,000 times the same namespace or node name is a megabyte.
 *
 * @module
 */

/** More different strings than this are no repetition; the table begins anew. */
const LARGEST = 16_384;

/** Gives the same string for equal strings. */
export class StringTable {
  #strings = new Map<string, string>();

  /** The copy that was met first. */
  intern(text: string): string {
    const known = this.#strings.get(text);
    if (known !== undefined) return known;
    if (this.#strings.size >= LARGEST) this.#strings = new Map();
    this.#strings.set(text, text);
    return text;
  }
}
