/**
 * The data of a Node stream, for a slow reader.
 *
 * @module
 */
import type { Readable } from "node:stream";

/** The minimum cost of a chunk: its own memory, however small it is. */
const CHUNK_COST = 512;
/** The stream is paused while the reader has this many bytes to read. */
const MOST_HELD = 256 * 1024;

/**
 * Collects the chunks of a stream from now on. It does not use the stream's own async iterator:
 * Deno 2.9's `node:http2` closes a stream while its last chunks are still unread, and that iterator
 * then fails ("Premature close") in one of ten responses if the reader pauses between chunks.
 */
export class StreamChunks implements AsyncIterable<Uint8Array> {
  readonly #stream: Readable;
  readonly #chunks: Uint8Array[] = [];
  #held = 0;
  #end: { readonly error?: unknown } | undefined;
  #wake = () => {};

  constructor(stream: Readable) {
    this.#stream = stream;
    stream.on("data", (chunk: Uint8Array) => this.#push(chunk));
    stream.on("end", () => this.#finish({}));
    stream.on("error", (error) => this.#finish({ error }));
    // After an orderly end this has no effect.
    stream.on("close", () => this.#finish({ error: new Error("it was closed before its end") }));
  }

  /** Ends with the stream; throws its error, or one when it was closed without an end. */
  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array, void, void> {
    for (;;) {
      const chunk = this.#chunks.shift();
      if (chunk !== undefined) {
        this.#take(chunk);
        yield chunk;
      } else if (this.#end !== undefined) {
        if ("error" in this.#end) throw this.#end.error;
        return;
      } else {
        await new Promise<void>((resolve) => this.#wake = resolve);
      }
    }
  }

  #push(chunk: Uint8Array): void {
    this.#chunks.push(chunk);
    this.#held += costOf(chunk);
    if (this.#held >= MOST_HELD) this.#stream.pause();
    this.#wake();
  }

  #take(chunk: Uint8Array): void {
    this.#held -= costOf(chunk);
    if (this.#stream.isPaused() && this.#held < MOST_HELD / 2) this.#stream.resume();
  }

  #finish(end: { readonly error?: unknown }): void {
    this.#end ??= end;
    this.#wake();
  }
}

function costOf(chunk: Uint8Array): number {
  return Math.max(chunk.length, CHUNK_COST);
}
