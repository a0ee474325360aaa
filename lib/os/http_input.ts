import { HttpRefusal } from "./http_head.ts";
import type { TcpConnection } from "./network.ts";

/** Initial size of the buffer, which fits most requests of health checks. */
const FIRST_BYTES = 1024;
/** Longest head, and as much of the data after it. */
const MOST_BYTES = 16_384;

const LINE_FEED = 10;
const CARRIAGE_RETURN = 13;

/** Reads a client's data ahead into a bounded buffer. */
export class HttpInput {
  readonly #socket: Pick<TcpConnection, "read">;
  #buffer = new Uint8Array(FIRST_BYTES);
  #start = 0;
  #end = 0;
  /** The index at which the search for the end of the head continues. */
  #searched = 0;
  #filling: Promise<boolean> | undefined;

  constructor(socket: Pick<TcpConnection, "read">) {
    this.#socket = socket;
  }

  /** Whether there is unread data of the client. */
  get hasBegun(): boolean {
    return this.#end > this.#start;
  }

  /**
   * Reads more; resolves to false at the end of the stream. Waits for a running read. Throws an
   * {@linkcode HttpRefusal} if the buffer is full.
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
    this.#skipEmptyLines();
    for (let at = Math.max(this.#searched, this.#start); at < this.#end; at++) {
      if (this.#buffer[at] !== LINE_FEED) continue;
      const next = at + (this.#buffer[at + 1] === CARRIAGE_RETURN ? 2 : 1);
      if (next >= this.#end) break;
      if (this.#buffer[next] !== LINE_FEED) continue;
      const text = String.fromCharCode(...this.#buffer.subarray(this.#start, at));
      this.#start = this.#searched = next + 1;
      return text.replace(/\r$/, "");
    }
    this.#searched = Math.max(this.#start, this.#end - 2);
    return undefined;
  }

  /** Takes the next bytes; `undefined` while they are incomplete. */
  take(count: number): Uint8Array<ArrayBuffer> | undefined {
    if (this.#end - this.#start < count) return undefined;
    const bytes = this.#buffer.slice(this.#start, this.#start + count);
    this.#start = this.#searched = this.#start + count;
    return bytes;
  }

  /** As RFC 9112 requires: old clients send one after a body. */
  #skipEmptyLines(): void {
    if (this.#searched > this.#start) return;
    while (this.hasBegun) {
      const byte = this.#buffer[this.#start];
      if (byte !== CARRIAGE_RETURN && byte !== LINE_FEED) return;
      this.#start++;
    }
  }

  async #read(): Promise<boolean> {
    this.#makeRoom();
    const count = await this.#socket.read(this.#buffer.subarray(this.#end));
    if (count === null) return false;
    this.#end += count;
    return true;
  }

  /** Must not be called during a read, which uses the buffer. */
  #makeRoom(): void {
    if (this.#start > 0) {
      this.#buffer.copyWithin(0, this.#start, this.#end);
      this.#searched = Math.max(0, this.#searched - this.#start);
      this.#end -= this.#start;
      this.#start = 0;
    }
    if (this.#end < this.#buffer.length) return;
    if (this.#buffer.length >= MOST_BYTES) throw new HttpRefusal(431);
    const larger = new Uint8Array(this.#buffer.length * 4);
    larger.set(this.#buffer);
    this.#buffer = larger;
  }
}
