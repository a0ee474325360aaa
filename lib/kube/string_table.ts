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

/** FNV-1a, of 32 bits. */
const NO_HASH = 0x811c9dc5 | 0;
const HASH_FACTOR = 0x01000193;

/** Returns the same string for equal strings. */
export class StringTable {
  #strings = new Map<string, string>();
  #hashed = new Map<number, string>();
  #values = new Map<string, unknown>();
  #times = new Map<number, string>();

  /** Returns the first copy. */
  intern(text: string): string {
    const known = this.#strings.get(text);
    if (known !== undefined) return known;
    if (this.#strings.size >= LARGEST) this.#strings = new Map();
    this.#strings.set(text, text);
    return text;
  }

  /**
   * Returns the string that {@linkcode internAscii} was given last for these bytes, if any. To
   * compare them is several times faster than to make a string of them.
   */
  ofBytes(bytes: Uint8Array, from: number, to: number): string | undefined {
    let hash = NO_HASH;
    for (let at = from; at < to; at++) hash = Math.imul(hash ^ bytes[at]!, HASH_FACTOR);
    const known = this.#hashed.get(hash);
    if (known?.length !== to - from) return undefined;
    for (let at = from; at < to; at++) {
      if (known.charCodeAt(at - from) !== bytes[at]) return undefined;
    }
    return known;
  }

  /** As {@linkcode intern}; {@linkcode ofBytes} finds the string if it is ASCII. */
  internAscii(text: string): string {
    if (this.#hashed.size >= LARGEST) this.#hashed = new Map();
    const shared = this.intern(text);
    let hash = NO_HASH;
    for (let at = 0; at < text.length; at++) {
      const code = text.charCodeAt(at);
      // The characters of "Ã©" are the bytes of "é".
      if (code > 0x7f) return shared;
      hash = Math.imul(hash ^ code, HASH_FACTOR);
    }
    this.#hashed.set(hash, shared);
    return shared;
  }

  /**
   * Returns the time of these seconds since 1970 as RFC 3339. Throws a RangeError for one that has none.
   * Objects were created together, and follow each other in the order of their names.
   */
  timeOf(seconds: number): string {
    const known = this.#times.get(seconds);
    if (known !== undefined) return known;
    const text = new Date(seconds * 1000).toISOString();
    if (text.length !== "0000-00-00T00:00:00.000Z".length) {
      throw new RangeError(`${seconds} s is no time between the years 0 and 9999`);
    }
    if (this.#times.size >= MOST_VALUES) this.#times = new Map();
    // A pattern makes a text of its own; slice() and + would keep their parts in memory.
    const short = text.replace(/\.000Z$/, "Z");
    this.#times.set(seconds, short);
    return short;
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
