/**
 * JSON texts that arrive in pieces, from a server that may send anything.
 *
 * @module
 */

/**
 * Longest object in bytes. An API server accepts requests of at most 3 MiB, and etcd stores 1.5 MiB
 * by default. Data stored as protobuf grows in JSON: one byte may become six (`\u003c`). No API
 * server sends a longer object, whatever its users created.
 */
export const MAX_OBJECT = 6 * 3 * 1024 * 1024;

/** Most values of one object: as protobuf, each takes at least four bytes of the 3 MiB. */
export const MAX_VALUES = 3 * 1024 * 1024 / 4;
/** Deepest nesting, as in Go's `encoding/json`. */
const DEEPEST = 10_000;
/** Size of the buffer that is kept for the next text. */
const KEPT_BYTES = 64 * 1024;
const DECODER = new TextDecoder();

/** Joins the pieces of successive texts. A piece may end inside a character. */
export class TextPieces {
  /** Doubles when full, so that small pieces cost no more than a large one. */
  #bytes = new Uint8Array(0);
  #length = 0;

  /** `tooLong` creates the error for a text of more than `most` bytes. @default {a RangeError} */
  constructor(
    private readonly most: number,
    private readonly tooLong = (most: number): Error =>
      new RangeError(`Cannot read the answer: it has more than ${most} bytes`),
  ) {}

  /** Bytes of the current text so far. */
  get length(): number {
    return this.#length;
  }

  /** Copies one piece; the caller may reuse its memory. Throws if the text is too long. */
  append(piece: Uint8Array): void {
    const length = this.#checkedLength(piece);
    if (length > this.#bytes.length) {
      const size = Math.max(length, 2 * this.#bytes.length);
      this.#bytes = new Uint8Array(this.#bytes.buffer.transfer(size));
    }
    this.#bytes.set(piece, this.#length);
    this.#length = length;
  }

  /** Returns the text that ends with `last` and begins the next one. Throws if it is too long. */
  take(last: Uint8Array = new Uint8Array(0)): string {
    return DECODER.decode(this.takeBytes(last));
  }

  /** As {@linkcode take}, without decoding. The bytes are valid until the next piece. */
  takeBytes(last: Uint8Array = new Uint8Array(0)): Uint8Array {
    if (this.#length === 0) {
      this.#checkedLength(last);
      return last;
    }
    this.append(last);
    const bytes = this.#bytes.subarray(0, this.#length);
    this.#length = 0;
    if (this.#bytes.length > KEPT_BYTES) this.#bytes = new Uint8Array(0);
    return bytes;
  }

  #checkedLength(piece: Uint8Array): number {
    const length = this.#length + piece.length;
    if (length > this.most) throw this.tooLong(this.most);
    return length;
  }
}

/**
 * As JSON.parse(). Throws a SyntaxError for too many values or levels as well: JSON.parse() takes
 * 12 s for six million empty objects, and as long for nine million levels.
 */
export function parseJson(text: string): unknown {
  if (text.length > DEEPEST) checkShape(text);
  return JSON.parse(text);
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;

function checkShape(text: string): void {
  let [depth, values] = [0, 0];
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code === QUOTE) {
      at = endOfString(text, at + 1);
    } else if (code === COMMA) {
      values++;
    } else if (code === OPEN_BRACE || code === OPEN_BRACKET) {
      depth++;
      values++;
    } else if (code === CLOSE_BRACE || code === CLOSE_BRACKET) {
      depth--;
    }
    if (depth > DEEPEST) throw new SyntaxError(`it has more than ${DEEPEST} levels of nesting`);
    if (values > MAX_VALUES) throw new SyntaxError(`it has more than ${MAX_VALUES} values`);
  }
}

/** The positions of the items of a list in its text, and the range to remove for an empty list. */
export interface FoundItems {
  readonly start: number;
  readonly end: number;
  readonly items: readonly { readonly start: number; readonly end: number }[];
}

/** Characters between two opportunities for the caller to pause. */
const STRIDE = 64 * 1024;

/**
 * Returns the positions of the entries of the top level's `items` without parsing the text, because to
 * parse 10,000 Services at once would block the event loop for 100 ms; `undefined` if there is no such
 * list, or if the text ends inside it. Whether the entries are JSON is left to their parser.
 */
export function* findJsonItems(text: string): Generator<undefined, FoundItems | undefined> {
  const items: { start: number; end: number }[] = [];
  let [depth, itemStart, pauseAt] = [0, 0, STRIDE];
  let listStart: number | undefined;
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code === QUOTE) {
      let end = endOfString(text, at + 1, at + STRIDE);
      while (end < 0) {
        yield undefined;
        end = endOfString(text, ~end + 1, ~end + STRIDE);
      }
      at = end;
    } else if (code === OPEN_BRACE || code === OPEN_BRACKET) {
      depth++;
      const opens = listStart === undefined && depth === 2 && code === OPEN_BRACKET;
      if (opens && /"items"\s*:\s*$/.test(text.slice(Math.max(0, at - 64), at))) {
        itemStart = listStart = at + 1;
      }
    } else if (
      depth === 2 && listStart !== undefined && (code === COMMA || code === CLOSE_BRACKET)
    ) {
      // It begins at its first character, so that messages show its position. Nothing between the
      // brackets is an empty list; nothing after a comma is an error of the parser.
      const first = text.slice(itemStart, at).search(/\S/);
      const start = first < 0 ? at : itemStart + first;
      if (start < at || code === COMMA || items.length > 0) items.push({ start, end: at });
      if (code === CLOSE_BRACKET) return { start: listStart, end: at, items };
      itemStart = at + 1;
    } else if (code === CLOSE_BRACE || code === CLOSE_BRACKET) {
      depth--;
    }
    if (at < pauseAt) continue;
    pauseAt = at + STRIDE;
    yield undefined;
  }
  return undefined;
}

/**
 * Returns the index of the closing quote of the string that continues at `from`. At a quote after
 * `pauseAt` that is escaped, returns the complement of its index: the string continues behind it.
 */
function endOfString(text: string, from: number, pauseAt = Infinity): number {
  for (let at = text.indexOf('"', from); at >= 0; at = text.indexOf('"', at + 1)) {
    let backslashes = 0;
    while (at - backslashes > from && text.charCodeAt(at - 1 - backslashes) === BACKSLASH) {
      backslashes++;
    }
    if (backslashes % 2 === 0) return at;
    if (at > pauseAt) return ~at;
  }
  return text.length;
}
