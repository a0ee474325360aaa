/**
 * Bytes of a list response → its items, one at a time. A page of 500 EndpointSlices may be 20 MB:
 * as one string for `JSON.parse` it would hold up the event loop for 100 ms and more, and all of it
 * would be in memory at once.
 *
 * @module
 */
import { messageOf } from "../log/message_of.ts";
import { LONGEST_OBJECT, parseJson, TextPieces } from "./json_text.ts";

/** What a list says besides its items. */
export interface ListMeta {
  /** The version that the list shows; a watch goes on from here. */
  readonly resourceVersion: string;
  /** What to ask the next page with; `undefined` on the last page. */
  readonly continue: string | undefined;
}

/** A list response that is cut short, too large, or no list. */
export class ListStreamError extends Error {
  override name = "ListStreamError";
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const COLON = 0x3a;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;
/** Most bytes besides the items. A continue token holds one key of etcd: a real list needs 2 KiB. */
const LONGEST_ENVELOPE = 1024 * 1024;
/** `items` with every character written as `\u0069`. */
const LONGEST_KEY = 30;
const BLANK = /^[ \t\r\n]*$/;

/**
 * Splits one list response. Give it each chunk with {@linkcode push}, take the items from what that
 * returns, and call {@linkcode finish} after the last chunk. It looks at each byte once.
 */
export class ListDecoder {
  /** Everything but the content of `items`. */
  readonly #envelope = new TextPieces(LONGEST_ENVELOPE, (most) => {
    return new ListStreamError(
      `Cannot read list: it has more than ${most} bytes besides its items`,
    );
  });
  readonly #item = new TextPieces(LONGEST_OBJECT, (most) => {
    return new ListStreamError(`Cannot read list: an item has more than ${most} bytes`);
  });
  #depth = 0;
  #inString = false;
  #escaped = false;
  #inItems = false;
  /** Whether the list has named its items. */
  #sawItems = false;
  /** Whether the value that comes next, directly inside the list, is that of `items`. */
  #atItems = false;
  #itemCount = 0;
  /** The beginning of the last string directly inside the list: the key, when a colon comes. */
  #key = "";

  /**
   * Yields the items that end in this chunk. Must be run to its end before the next `push`. Throws a
   * {@linkcode ListStreamError} for an item that is not JSON, and for what is too large.
   */
  *push(chunk: Uint8Array): Generator<unknown, void, void> {
    // Bytes from `start` on belong to the current item, or to the envelope outside of `items`.
    let start = 0;
    let at = this.#inString ? this.#skipString(chunk, 0) : 0;
    for (; at < chunk.length; at++) {
      const byte = chunk[at];
      if (byte === QUOTE) {
        if (this.#depth === 1) this.#key = "";
        at = this.#skipString(chunk, at + 1) - 1;
      } else if (byte === OPEN_BRACE || byte === OPEN_BRACKET) {
        if (this.#opens(byte)) {
          this.#envelope.append(chunk.subarray(start, at + 1));
          start = at + 1;
        }
      } else if (byte === CLOSE_BRACE || byte === CLOSE_BRACKET) {
        this.#depth--;
        if (this.#inItems && this.#depth === 1) {
          const last = this.#item.take(chunk.subarray(start, at));
          this.#inItems = false;
          start = at;
          // Nothing between the brackets is an empty list; nothing after a comma is an error.
          if (this.#itemCount > 0 || !BLANK.test(last)) yield this.#parseItem(last);
        }
      } else if (byte === COMMA && this.#inItems && this.#depth === 2) {
        yield this.#parseItem(this.#item.take(chunk.subarray(start, at)));
        start = at + 1;
      } else if (byte === COLON && this.#depth === 1) {
        this.#noteKey();
      }
    }
    (this.#inItems ? this.#item : this.#envelope).append(chunk.subarray(start));
  }

  /** Returns what the list said of itself. Throws a {@linkcode ListStreamError} when it isn't complete. */
  finish(): ListMeta {
    const envelope = this.#parseEnvelope();
    // Whatever stood between the brackets was handed over already.
    if (!Array.isArray(envelope?.items ?? [])) {
      throw new ListStreamError("Cannot read list: its 'items' has to be a list or null");
    }
    const version = envelope?.metadata?.resourceVersion;
    if (typeof version !== "string") {
      throw new ListStreamError(
        "Cannot read list: it has no metadata.resourceVersion; an API server always sends one",
      );
    }
    const next = envelope?.metadata?.continue;
    return {
      resourceVersion: version,
      continue: typeof next === "string" && next !== "" ? next : undefined,
    };
  }

  /** Goes one level deeper, and returns whether the items begin. */
  #opens(byte: number): boolean {
    this.#depth++;
    const opens = this.#atItems && this.#depth === 2 && byte === OPEN_BRACKET;
    this.#atItems = false;
    this.#inItems ||= opens;
    return opens;
  }

  /** Where the text after the string that goes on at `from` begins, or the end of the chunk. */
  #skipString(chunk: Uint8Array, from: number): number {
    const end = this.#endOfString(chunk, from);
    if (this.#depth === 1) {
      const wanted = LONGEST_KEY + 1 - this.#key.length;
      const last = this.#inString ? end : end - 1;
      const part = chunk.subarray(from, Math.min(last, from + wanted));
      // Not decoded: `items` is ASCII, and a character may be cut between two chunks.
      this.#key += String.fromCharCode(...part);
    }
    return end;
  }

  #endOfString(chunk: Uint8Array, from: number): number {
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

  #noteKey(): void {
    this.#atItems = this.#key.length <= LONGEST_KEY && unescaped(this.#key) === "items";
    if (this.#atItems && this.#sawItems) {
      throw new ListStreamError("Cannot read list: it has 'items' twice");
    }
    this.#sawItems ||= this.#atItems;
  }

  #parseItem(text: string): unknown {
    this.#itemCount++;
    try {
      return parseJson(text);
    } catch (cause) {
      const reason = messageOf(cause);
      throw new ListStreamError(`Cannot read list: one of its items is not JSON: ${reason}`, {
        cause,
      });
    }
  }

  #parseEnvelope(): Envelope {
    try {
      return parseJson(this.#envelope.take()) as Envelope;
    } catch (cause) {
      if (cause instanceof ListStreamError) throw cause;
      throw new ListStreamError("Cannot read list: it was cut short or is not JSON", { cause });
    }
  }
}

/** What is read of a list besides its items, as far as it was checked. */
type Envelope = {
  readonly items?: unknown;
  readonly metadata?: { readonly resourceVersion?: unknown; readonly continue?: unknown } | null;
} | null;

function unescaped(key: string): string {
  if (!key.includes("\\")) return key;
  try {
    return JSON.parse(`"${key}"`);
  } catch {
    return key;
  }
}
