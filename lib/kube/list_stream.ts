/**
 * Bytes of a list response → its items, one at a time. A page of 500 EndpointSlices may be 20 MB:
 * as one string for `JSON.parse` it would hold up the event loop for 100 ms and more, and all of it
 * would be in memory at once.
 *
 * @module
 */
import { decodeParts } from "./watch_stream.ts";

/** What a list says besides its items. */
export interface ListMeta {
  /** The version that the list shows; a watch goes on from here. */
  readonly resourceVersion: string;
  /** What to ask the next page with; `undefined` on the last page. */
  readonly continue: string | undefined;
}

/** A list response that is cut short or is no list. */
export class ListStreamError extends Error {
  override name = "ListStreamError";
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;

/**
 * Splits one list response. Give it each chunk with {@linkcode push}, take the items from what that
 * returns, and call {@linkcode finish} after the last chunk.
 */
export class ListDecoder {
  /** Everything but the content of `items`: a small JSON text once the list is complete. */
  readonly #envelope: Uint8Array[] = [];
  #item: Uint8Array[] = [];
  #depth = 0;
  #inString = false;
  #escaped = false;
  #inItems = false;
  #sawItems = false;

  /** Yields the items that end in this chunk. Must be run to its end before the next `push`. */
  *push(chunk: Uint8Array): Generator<unknown, void, void> {
    // Bytes from `start` on belong to the current item, or to the envelope outside of `items`.
    let start = 0;
    let at = this.#inString ? this.#skipString(chunk, 0) : 0;
    for (; at < chunk.length; at++) {
      const byte = chunk[at];
      if (byte === QUOTE) {
        at = this.#skipString(chunk, at + 1) - 1;
      } else if (byte === OPEN_BRACE || byte === OPEN_BRACKET) {
        this.#depth++;
        if (this.#depth === 2 && byte === OPEN_BRACKET && this.#isItemsNext(chunk, start, at)) {
          this.#envelope.push(chunk.slice(start, at + 1));
          this.#inItems = this.#sawItems = true;
          start = at + 1;
        }
      } else if (byte === CLOSE_BRACE || byte === CLOSE_BRACKET) {
        this.#depth--;
        if (this.#inItems && this.#depth === 2) {
          yield this.#parseItem(chunk.subarray(start, at + 1));
          start = at + 1;
        } else if (this.#inItems && this.#depth === 1) {
          this.#inItems = false;
          start = at;
        }
      } else if (byte === COMMA && this.#inItems && this.#depth === 2) {
        start = at + 1;
      }
    }
    // Copies: the sender may use the chunk's memory again.
    if (start < chunk.length) {
      (this.#inItems ? this.#item : this.#envelope).push(chunk.slice(start));
    }
  }

  /** Says what the list said of itself. Throws a {@linkcode ListStreamError} when it isn't complete. */
  finish(): ListMeta {
    let envelope: { metadata?: { resourceVersion?: unknown; continue?: unknown } | null };
    try {
      envelope = JSON.parse(decodeParts(this.#envelope));
    } catch (cause) {
      throw new ListStreamError("Cannot read list: it was cut short or is not JSON", { cause });
    }
    const version = envelope?.metadata?.resourceVersion;
    if (typeof version !== "string") {
      throw new ListStreamError(
        "Cannot read list: it has no metadata.resourceVersion; an API server always sends one",
      );
    }
    const next = envelope.metadata?.continue;
    return {
      resourceVersion: version,
      continue: typeof next === "string" && next !== "" ? next : undefined,
    };
  }

  /** Where the text after the string that goes on at `from` begins, or the end of the chunk. */
  #skipString(chunk: Uint8Array, from: number): number {
    let at = from;
    // A backslash may be the last byte of one chunk and what it escapes the first of the next.
    if (this.#escaped && at < chunk.length) {
      this.#escaped = false;
      at++;
    }
    for (; at < chunk.length; at++) {
      const byte = chunk[at];
      if (byte === QUOTE) {
        this.#inString = false;
        return at + 1;
      }
      if (byte === BACKSLASH) {
        at++;
        this.#escaped = at === chunk.length;
      }
    }
    this.#inString = true;
    return chunk.length;
  }

  /** Whether the bracket at `at`, just inside the list, opens the value of `items`. */
  #isItemsNext(chunk: Uint8Array, start: number, at: number): boolean {
    if (this.#sawItems) return false;
    const text = decodeParts([...this.#envelope, chunk.subarray(start, at)]);
    return /[{,\s]"items"\s*:\s*$/.test(text);
  }

  #parseItem(end: Uint8Array): unknown {
    this.#item.push(end);
    const text = decodeParts(this.#item);
    this.#item = [];
    try {
      return JSON.parse(text);
    } catch (cause) {
      throw new ListStreamError("Cannot read list: one of its items is not JSON", { cause });
    }
  }
}
