interface BufferPoolOptions {
  /** Bytes of each buffer. */
  readonly size: number;
  /** Unused buffers that are kept; more than that go to the garbage collector. */
  readonly keep: number;
}

/** Buffers of one size, each with memory of its own. */
export class BufferPool {
  readonly size: number;
  readonly #keep: number;
  readonly #free: Uint8Array[] = [];

  constructor({ size, keep }: BufferPoolOptions) {
    this.size = size;
    this.#keep = keep;
  }

  take(): Uint8Array {
    return this.#free.pop() ?? new Uint8Array(this.size);
  }

  /** Takes back a buffer that nothing reads or writes any more. */
  give(buffer: Uint8Array): void {
    if (this.#free.length < this.#keep) this.#free.push(buffer);
  }
}

/** Bytes of a UDP datagram buffer: no datagram is longer than 65,527. */
export const DATAGRAM_BYTES = 65_536;

/**
 * Buffers for datagrams, cut from large blocks.
 *
 * Each UDP socket needs a buffer of its own in the pending receive, and a datagram that is longer
 * than the buffer is cut without notice, so all must have the full length. Taken one by one,
 * 2,000 of them made 128 MB resident (V8's allocator clears them); pages of a block of 64 MiB come
 * cleared from the kernel and cost nothing until a datagram touches them: 4 KB for a usual one.
 */
export class DatagramBufferPool {
  readonly #perBlock: number;
  // The last given is the first taken, so that few pages are ever touched.
  readonly #free: Uint8Array[] = [];
  #block: ArrayBuffer | undefined;
  #used = 0;

  /** Blocks below 32 MiB are not sure to be mapped afresh (glibc's largest threshold). */
  constructor(buffersPerBlock = 1024) {
    this.#perBlock = buffersPerBlock;
  }

  take(): Uint8Array {
    const free = this.#free.pop();
    if (free) return free;
    if (!this.#block || this.#used === this.#perBlock) {
      this.#block = new ArrayBuffer(this.#perBlock * DATAGRAM_BYTES);
      this.#used = 0;
    }
    return new Uint8Array(this.#block, this.#used++ * DATAGRAM_BYTES, DATAGRAM_BYTES);
  }

  /** Takes back a buffer that nothing reads or writes any more. */
  give(buffer: Uint8Array): void {
    this.#free.push(buffer);
  }
}
