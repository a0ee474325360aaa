/**
 * Decodes the bytes of a list response into its items, one at a time. A page of 500 EndpointSlices
 * may have 20 MB: `JSON.parse` of the whole page would block the event loop for over 100 ms, and
 * need all of it in memory at once.
 *
 * @module
 */
import { messageOf } from "../log/message_of.ts";
import { LONGEST_OBJECT, parseJson, TextPieces } from "./json_text.ts";

/** The metadata of a list. */
export interface ListMeta {
  /** The version of the list, from which a watch continues. */
  readonly resourceVersion: string;
  /** The token of the next page; `undefined` on the last page. */
  readonly continue: string | undefined;
}

/** A list response that is incomplete, too large, or not a list. */
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
/**
 * Most bytes besides the items. A continue token holds one key of etcd: a real list needs 2 KiB.
 */
export const LONGEST_ENVELOPE = 1024 * 1024;
/** The length of `items` with every character as `\u0069`. */
const LONGEST_KEY = 30;
const BLANK = /^[ \t\r\n]*$/;

/**
 * Splits one list response. Pass each chunk to {@linkcode push}, consume the items that it yields,
 * and call {@linkcode finish} after the last chunk. It reads each byte once.
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
  /** Whether the key `items` was read. */
  #sawItems = false;
  /** Whether the next value, directly inside the list, is that of `items`. */
  #atItems = false;
  #itemCount = 0;
  /**
   * The beginning of the last string directly inside the list, which is a key if a colon follows.
   */
  #key = "";

  /**
   * Yields the items that end in this chunk. Must be run to its end before the next `push`. Throws
   * a {@linkcode ListStreamError} for an item that is not JSON or too large.
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

  /** Returns the metadata of the list. Throws a {@linkcode ListStreamError} if it is incomplete. */
  finish(): ListMeta {
    const envelope = this.#parseEnvelope();
    // The items between the brackets were already yielded.
    if (!Array.isArray(envelope?.items ?? [])) {
      throw new ListStreamError("Cannot read list: its 'items' has to be a list or null");
    }
    const version = envelope?.metadata?.resourceVersion;
    if (typeof version !== "string") {
      throw new ListStreamError(
        "Cannot read list: it has no metadata.resourceVersion; an API server always sends one",
      );
    }
    // Taken for an empty list, any other answer would delete everything.
    if (!this.#sawItems) throw new ListStreamError("Cannot read list: it has no 'items'");
    const next = envelope?.metadata?.continue;
    return {
      resourceVersion: version,
      continue: typeof next === "string" && next !== "" ? next : undefined,
    };
  }

  /** Goes one level deeper; returns whether the items begin. */
  #opens(byte: number): boolean {
    this.#depth++;
    const opens = this.#atItems && this.#depth === 2 && byte === OPEN_BRACKET;
    this.#atItems = false;
    this.#inItems ||= opens;
    return opens;
  }

  /** Returns the end of the string that continues at `from`, or the end of the chunk. */
  #skipString(chunk: Uint8Array, from: number): number {
    const end = this.#endOfString(chunk, from);
    if (this.#depth === 1) {
      const wanted = LONGEST_KEY + 1 - this.#key.length;
      const last = this.#inString ? end : end - 1;
      const part = chunk.subarray(from, Math.min(last, from + wanted));
      // Not decoded: `items` is ASCII, and a character may be split between two chunks.
      this.#key += String.fromCharCode(...part);
    }
    return end;
  }

  #endOfString(chunk: Uint8Array, from: number): number {
    let at = from;
    // A chunk may end between a backslash and the escaped character.
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

/** The fields of a list besides its items that were checked. */
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
