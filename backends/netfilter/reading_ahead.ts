/**
 * Something that is read of a machine before it is asked for, while its reader does something else.
 *
 * @module
 */
import type { IpFamily } from "../../lib/net/ip_address.ts";
import type { KernelReading } from "../../lib/proxy/backend.ts";

/** A reading that has begun. What is in the way is told to who waits for it, and to nobody else. */
export class ReadingAhead<T> implements KernelReading {
  readonly family: IpFamily;
  readonly #controller = new AbortController();
  readonly #result: Promise<T>;

  /** Begins at once; `signal` ends the tools that it runs. */
  constructor(family: IpFamily, read: (signal: AbortSignal) => Promise<T>) {
    this.family = family;
    this.#result = read(this.#controller.signal);
    this.#result.catch(() => {});
  }

  /** What was read. Rejects with what was in the way. */
  get result(): Promise<T> {
    return this.#result;
  }

  /** Ends it, if it is still under way, and waits for the end of its tools. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#controller.abort();
    await this.#result.catch(() => {});
  }
}
