import { HttpRefusal } from "./http_head.ts";
import type { TcpConnection } from "./network.ts";

/** Read at a time, which fits most requests of health checks. */
const PIECE_BYTES = 1024;
/** Longest head, and as much of the data after it. */
const MOST_BYTES = 16_384;

/** Reads a client's data ahead, up to a bound. */
export class HttpInput {
  readonly #socket: Pick<TcpConnection, "read">;
  #data = new Uint8Array();
  #filling: Promise<boolean> | undefined;

  constructor(socket: Pick<TcpConnection, "read">) {
    this.#socket = socket;
  }

  /** Whether there is unread data of the client. */
  get hasBegun(): boolean {
    return this.#data.length > 0;
  }

  /**
   * Reads more; resolves to false at the end of the stream. Waits for a running read. Throws an
   * {@linkcode HttpRefusal} at the bound.
   */
  fill(): Promise<boolean> {
    return this.#filling ??= this.#read().finally(() => this.#filling = undefined);
  }

  /** Like {@linkcode fill}, to detect the end of the stream; a queued request hides it. */
  watch(): Promise<boolean> {
    return this.hasBegun ? Promise.resolve(true) : this.fill();
  }

  /** Takes the head of a request without its empty line; `undefined` while it is incomplete. */
  takeHead(): string | undefined {
    const text = String.fromCharCode(...this.#data);
    // As RFC 9112 requires: old clients send an empty line after a body.
    const [blank] = /^[\r\n]*/.exec(text)!;
    const end = /\r?\n\r?\n/.exec(text.slice(blank.length));
    const head = end ? blank.length + end.index + end[0].length : blank.length;
    this.#data = this.#data.slice(head);
    return end ? text.slice(blank.length, head - end[0].length) : undefined;
  }

  /** Takes the next bytes; `undefined` while they are incomplete. */
  take(count: number): Uint8Array<ArrayBuffer> | undefined {
    if (this.#data.length < count) return undefined;
    const bytes = this.#data.slice(0, count);
    this.#data = this.#data.slice(count);
    return bytes;
  }

  async #read(): Promise<boolean> {
    if (this.#data.length >= MOST_BYTES) throw new HttpRefusal(431);
    // Larger once a head is long: a connection that waits has a small buffer.
    const room = Math.min(Math.max(PIECE_BYTES, this.#data.length), MOST_BYTES - this.#data.length);
    const piece = new Uint8Array(room);
    const count = await this.#socket.read(piece);
    if (count === null) return false;
    const data = new Uint8Array(this.#data.length + count);
    data.set(this.#data);
    data.set(piece.subarray(0, count), this.#data.length);
    this.#data = data;
    return true;
  }
}
