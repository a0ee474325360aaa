/**
 * Counts of open connections in memory that all threads share, so that none has to ask another one:
 * those of a Service, of a client of a Service, and to an endpoint. Each thread has a table of its own,
 * to which only it writes; a count is the sum of all. So the counts of a thread end with it.
 *
 * @module
 */
import { hashText } from "../../lib/net/text_hash.ts";
import { type MemoryRegion, type SharedMemory, THREAD_MEMORY } from "../../lib/os/shared_memory.ts";

/** The memory of the counts. Pages to which nothing was ever written take none. */
export interface CountMemory<Region = ArrayBufferLike> {
  /** For each thread, a tag and a count for each cell. */
  readonly tables: readonly Region[];
  /** The tags of rates, and until when each is used up, in microseconds. */
  readonly rateTags: Region;
  readonly rateTimes: Region;
}

/** Where a count is looked for. */
export interface CountKey {
  readonly home: number;
  /** Never 0, which stands for a cell that was never used. */
  readonly tag: number;
}

/** Cells from the home of a key on that may have its count. */
const WINDOW = 32;
const FEWEST_CELLS = 2 ** 12;
const MOST_CELLS = 2 ** 20;
const RATES = 2 ** 12;
const SECOND = 1_000_000;

/** Each open file may be a connection with counts of its own. */
export function createCountMemory(
  openFiles: number,
  threads: number,
): CountMemory<SharedArrayBuffer>;
export function createCountMemory(
  openFiles: number,
  threads: number,
  memory: SharedMemory,
): CountMemory<MemoryRegion>;
export function createCountMemory(
  openFiles: number,
  threads: number,
  memory = THREAD_MEMORY,
): CountMemory<MemoryRegion> {
  const wanted = 2 ** Math.ceil(Math.log2(2 * openFiles));
  const cells = Math.min(Math.max(wanted, FEWEST_CELLS), MOST_CELLS);
  return {
    tables: Array.from(
      { length: threads },
      () => memory.allocate(2 * cells * Int32Array.BYTES_PER_ELEMENT),
    ),
    rateTags: memory.allocate(RATES * Int32Array.BYTES_PER_ELEMENT),
    rateTimes: memory.allocate(RATES * BigInt64Array.BYTES_PER_ELEMENT),
  };
}

/** The key of a text, such as that of a Service and a client. */
export function countKey(text: string): CountKey {
  return { home: hashText(text), tag: hashText(`#${text}`) || 1 };
}

/** The counts as one thread uses them. */
export class SharedCounts {
  readonly #tables: readonly Int32Array[];
  readonly #own: Int32Array;
  readonly #last: number;
  readonly #rateTags: Int32Array;
  readonly #rateTimes: BigInt64Array;

  constructor({ tables, rateTags, rateTimes }: CountMemory, thread: number) {
    this.#tables = tables.map((table) => new Int32Array(table));
    this.#own = this.#tables[thread]!;
    this.#last = this.#own.length / 2 - 1;
    this.#rateTags = new Int32Array(rateTags);
    this.#rateTimes = new BigInt64Array(rateTimes);
  }

  of(key: CountKey): number {
    let sum = 0;
    for (const table of this.#tables) {
      const cell = this.#find(table, key);
      if (cell !== undefined && cell >= 0) sum += Atomics.load(table, 2 * cell + 1);
    }
    return sum;
  }

  /**
   * Counts one more, unless there are `most`. Returns whether it did; it also does not if the memory is
   * full, which takes more connections than may be open. Two threads that want the last one in the same
   * moment may both be refused.
   */
  add(key: CountKey, most = Infinity): boolean {
    if (most !== Infinity && this.of(key) >= most) return false;
    const found = this.#find(this.#own, key);
    if (found === undefined) return false;
    const cell = found < 0 ? ~found : found;
    if (found < 0) Atomics.store(this.#own, 2 * cell, key.tag);
    Atomics.add(this.#own, 2 * cell + 1, 1);
    if (most === Infinity || this.of(key) <= most) return true;
    Atomics.sub(this.#own, 2 * cell + 1, 1);
    return false;
  }

  /** Takes back what this thread has counted, if anything. */
  remove(key: CountKey): void {
    const cell = this.#find(this.#own, key);
    if (cell === undefined || cell < 0) return;
    // The main thread may forget this one, which is about to end, at any step.
    const count = Atomics.load(this.#own, 2 * cell + 1);
    if (count > 0) Atomics.compareExchange(this.#own, 2 * cell + 1, count, count - 1);
  }

  /** Takes one of the events that a key may have in a second; returns whether there was one left. */
  spend(key: CountKey, perSecond: number, now: number): boolean {
    const time = Math.round(1000 * now);
    const cell = this.#rateOf(key, time);
    for (;;) {
      const before = Atomics.load(this.#rateTimes, cell);
      const after = Math.max(Number(before), time) + Math.floor(SECOND / perSecond);
      if (after > time + SECOND) return false;
      const replaced = Atomics.compareExchange(this.#rateTimes, cell, before, BigInt(after));
      if (replaced === before) return true;
    }
  }

  /** Takes back all that this thread has counted: it has ended, or begins in place of one that has. */
  forgetOwn(): void {
    // Plain reads, as there may be a million cells, and writes only where they change something.
    for (let cell = 0; cell <= this.#last; cell++) {
      if (this.#own[2 * cell + 1] !== 0) Atomics.store(this.#own, 2 * cell + 1, 0);
    }
  }

  /** The cell of a key in a table, or the inverted number of the first free one; `undefined` = there is none. */
  #find(table: Int32Array, { home, tag }: CountKey): number | undefined {
    let free: number | undefined;
    for (let step = 0; step < WINDOW; step++) {
      const cell = (home + step) & this.#last;
      const found = Atomics.load(table, 2 * cell);
      if (found === tag) return cell;
      if (free === undefined && Atomics.load(table, 2 * cell + 1) === 0) free = ~cell;
      if (found === 0) break;
    }
    return free;
  }

  /** The cell of a rate. One that is not used up says nothing, so another key may have its cell. */
  #rateOf({ home, tag }: CountKey, time: number): number {
    let free: number | undefined;
    for (let step = 0; step < WINDOW; step++) {
      const cell = (home + step) & (RATES - 1);
      const found = Atomics.load(this.#rateTags, cell);
      if (found === tag) return cell;
      if (Number(Atomics.load(this.#rateTimes, cell)) <= time) free ??= cell;
      if (found === 0) break;
    }
    // Without a free one, two Services have a rate in common.
    const cell = free ?? home & (RATES - 1);
    if (free !== undefined) Atomics.store(this.#rateTags, cell, tag);
    return cell;
  }
}
