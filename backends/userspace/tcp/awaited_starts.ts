import type { Clock } from "../../../lib/os/clock.ts";
import type { EngineConnection } from "../engine.ts";
import { ExpiryQueue, type RecencyItem } from "../expiry_queue.ts";

/** The bytes with which a connection has to begin. */
export interface AwaitedStart extends RecencyItem<AwaitedStart> {
  readonly close: () => void;
  /** Why the connection was closed. */
  reason: string | undefined;
}

/**
 * Connections of one place that may wait for their start, in each thread. Ten thousand in a second leave
 * each of them 100 ms, and the start follows the handshake of TCP at once.
 */
export const MOST_WAITING = 1024;
/** A connection that has waited for so long may be closed for a new one if there is no room. */
const PROMPT_MS = 250;

/** Connections that have sent too little to be known, the one that has waited longest first. */
export class AwaitedStarts {
  readonly #clock: Clock;
  readonly #queue: ExpiryQueue<AwaitedStart>;

  constructor(clock: Clock, timeoutMs: number) {
    this.#clock = clock;
    this.#queue = new ExpiryQueue(
      clock,
      timeoutMs,
      (start) => this.#giveUp(start, "it did not come in time"),
    );
  }

  get size(): number {
    return this.#queue.size;
  }

  expireAfter(timeoutMs: number): void {
    this.#queue.expireAfter(timeoutMs);
  }

  /** Begins to wait. At the bound, another connection is given up. */
  add(close: () => void): AwaitedStart {
    if (this.size >= MOST_WAITING) this.#giveUpFirst(`${MOST_WAITING} others wait, too`);
    const links = { older: undefined, newer: undefined, usedAt: 0 };
    const start: AwaitedStart = { close, reason: undefined, ...links };
    this.#queue.add(start, this.#clock.now());
    return start;
  }

  /** It has come, or the connection has ended. */
  delete(start: AwaitedStart): void {
    this.#queue.delete(start);
    if (this.size === 0) this.#queue.close();
  }

  /** Whether one is late. */
  get hasLate(): boolean {
    const { oldest } = this.#queue;
    return oldest !== undefined && oldest.usedAt <= this.#clock.now() - PROMPT_MS;
  }

  /** Closes up to `count` connections that are late, and returns their number. */
  closeLate(count: number): number {
    let closed = 0;
    for (; closed < count && this.hasLate; closed++) {
      this.#giveUpFirst("it did not come at once, and a new connection needed the room");
    }
    return closed;
  }

  /** Closes all. */
  close(): void {
    for (const start of this.#queue) this.#giveUp(start, "kube-relay stops");
  }

  #giveUpFirst(reason: string): void {
    const { oldest } = this.#queue;
    if (oldest) this.#giveUp(oldest, reason);
  }

  #giveUp(start: AwaitedStart, reason: string): void {
    this.delete(start);
    start.reason = reason;
    start.close();
  }
}

/** A start that does not come. */
export type NoStart =
  /** The connection ended before anything came, as with health checks, or was closed here. */
  | { readonly kind: "nothing" }
  | { readonly kind: "invalid"; readonly reason: string };

/**
 * Reads until `parse` knows the start. Else it returns how many bytes have to come first: read byte by byte,
 * a long start would be looked at again and again. Up to `first` bytes are read into a small buffer.
 */
export async function readStart<Start>(
  connection: EngineConnection,
  [first, most]: readonly [first: number, most: number],
  parse: (received: Uint8Array<ArrayBuffer>) => Start | number,
): Promise<Start | NoStart> {
  let buffer = new Uint8Array(first);
  for (let [filled, atLeast] = [0, 0];;) {
    const count = await connection.read(buffer.subarray(filled));
    if (count === null) {
      return filled === 0
        ? { kind: "nothing" }
        : { kind: "invalid", reason: "the connection ended within it" };
    }
    filled += count;
    if (filled < Math.min(atLeast, buffer.length)) continue;
    const received = buffer.subarray(0, filled);
    const found = parse(received);
    if (typeof found !== "number") return found;
    atLeast = found;
    if (filled < buffer.length) continue;
    buffer = new Uint8Array(most);
    buffer.set(received);
  }
}
