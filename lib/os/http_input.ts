/**
 * What a client has sent and nobody has taken yet.
 *
 * @module
 */
import { HttpRefusal } from "./http_head.ts";
import type { TcpConnection } from "./network.ts";

/** The buffer begins so small, for most requests of health checks fit. */
const FIRST_BYTES = 1024;
/** Longest head, and so much of what follows it. */
const MOST_BYTES = 16_384;

const LINE_FEED = 10;
const CARRIAGE_RETURN = 13;

/** Reads ahead into a bounded buffer. */
export class HttpInput {
  readonly #socket: Pick<TcpConnection, "read">;
  #buffer = new Uint8Array(FIRST_BYTES);
  #start = 0;
  #end = 0;
  /** Where the search for the end of the head goes on. */
  #searched = 0;
  #filling: Promise<boolean> | undefined;

  constructor(socket: Pick<TcpConnection, "read">) {
    this.#socket = socket;
  }

  /** Whether the client has sent something that was not taken. */
  get hasBegun(): boolean {
    return this.#end > this.#start;
  }

  /**
   * Reads some more; resolves to false at the end of the stream. A read that is under way is waited
   * for. Throws an {@linkcode HttpRefusal} when the buffer is full.
   */
  fill(): Promise<boolean> {
    return this.#filling ??= this.#read().finally(() => this.#filling = undefined);
  }

  /** As {@linkcode fill}, to learn of the end of the stream; behind another request it is not seen. */
  watch(): Promise<boolean> {
    return this.hasBegun ? Promise.resolve(true) : this.fill();
  }

  /** The head of a request without its empty line; `undefined` as long as it is not complete. */
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

  /** The next bytes; `undefined` as long as they are not there. */
  take(count: number): Uint8Array<ArrayBuffer> | undefined {
    if (this.#end - this.#start < count) return undefined;
    const bytes = this.#buffer.slice(this.#start, this.#start + count);
    this.#start = this.#searched = this.#start + count;
    return bytes;
  }

  /** As RFC 9112 asks for: old clients send one after a body. */
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

  /** Not called while a read is under way, which holds the buffer. */
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
