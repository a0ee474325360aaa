/**
 * Messages on a stream of bytes: the length in four bytes, then JSON in which maps and sets are marked.
 * What JSON leaves out (absent fields) is absent at the other end, too.
 *
 * @module
 */

const LENGTH_BYTES = 4;
const MARKS = { map: "\u0000map", set: "\u0000set" } as const;

/** Encodes a message of plain data. */
export function encodeFrame(message: unknown): Uint8Array<ArrayBuffer> {
  const text = JSON.stringify(
    message,
    (_, value) =>
      value instanceof Map
        ? { [MARKS.map]: [...value] }
        : value instanceof Set
        ? { [MARKS.set]: [...value] }
        : value instanceof Error
        ? value.message
        : value,
  );
  const content = new TextEncoder().encode(text);
  const frame = new Uint8Array(LENGTH_BYTES + content.length);
  new DataView(frame.buffer).setUint32(0, content.length);
  frame.set(content, LENGTH_BYTES);
  return frame;
}

/** Puts messages together from the pieces in which they come. */
export class FrameReader {
  readonly #onMessage: (message: unknown) => void;
  #pieces: Uint8Array[] = [];
  #size = 0;

  /** `longest`: bytes of a message; it may be changed. */
  constructor(public longest: number, onMessage: (message: unknown) => void) {
    this.#onMessage = onMessage;
  }

  /**
   * Takes the next bytes, which may be others afterwards. Throws if they are no messages, or one is too
   * long.
   */
  take(bytes: Uint8Array): void {
    this.#pieces.push(bytes.slice());
    this.#size += bytes.length;
    while (this.#size >= LENGTH_BYTES) {
      const [first] = this.#pieces.length > 1 && this.#pieces[0]!.length < LENGTH_BYTES
        ? this.#join()
        : this.#pieces;
      const length = new DataView(first!.buffer, first!.byteOffset).getUint32(0);
      if (length > this.longest) {
        throw new RangeError(`a message has at most ${this.longest} bytes, not ${length}`);
      }
      if (this.#size < LENGTH_BYTES + length) return;
      const [all] = this.#join();
      const rest = all.subarray(LENGTH_BYTES + length);
      this.#pieces = rest.length > 0 ? [rest] : [];
      this.#size = rest.length;
      this.#onMessage(decode(all.subarray(LENGTH_BYTES, LENGTH_BYTES + length)));
    }
  }

  /** Makes one piece of all. */
  #join(): [Uint8Array] {
    if (this.#pieces.length === 1) return [this.#pieces[0]!];
    const all = new Uint8Array(this.#size);
    let end = 0;
    for (const piece of this.#pieces) {
      all.set(piece, end);
      end += piece.length;
    }
    this.#pieces = [all];
    return [all];
  }
}

function decode(bytes: Uint8Array): unknown {
  return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes), (_, value) => {
    if (typeof value !== "object" || value === null) return value;
    if (Array.isArray(value[MARKS.map])) return new Map(value[MARKS.map]);
    return Array.isArray(value[MARKS.set]) ? new Set(value[MARKS.set]) : value;
  });
}
