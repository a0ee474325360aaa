/**
 * Counts of open connections in memory that all threads share, so that none has to ask another one:
 * those of a Service, of a client of a Service, and to an endpoint. A count is found by two hashes of
 * its text; each thread also has its own part of it, which is given back when the thread ends.
 *
 * @module
 */
import { hashText } from "../../lib/net/text_hash.ts";

/** The memory of the counts. Pages that are not used take none. */
export interface CountMemory {
  /** A tag and a count for each cell. */
  readonly cells: SharedArrayBuffer;
  /** What each thread has counted in a cell. */
  readonly own: readonly SharedArrayBuffer[];
  /** The tags of rates, and until when each is used up, in microseconds. */
  readonly rateTags: SharedArrayBuffer;
  readonly rateTimes: SharedArrayBuffer;
  /** The thread that gives a cell to a key, which only one does at a time; 0 = none. */
  readonly claiming: SharedArrayBuffer;
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
export function createCountMemory(openFiles: number, threads: number): CountMemory {
  const wanted = 2 ** Math.ceil(Math.log2(2 * openFiles));
  const cells = Math.min(Math.max(wanted, FEWEST_CELLS), MOST_CELLS);
  return {
    cells: new SharedArrayBuffer(2 * cells * Int32Array.BYTES_PER_ELEMENT),
    own: Array.from(
      { length: threads },
      () => new SharedArrayBuffer(cells * Int32Array.BYTES_PER_ELEMENT),
    ),
    rateTags: new SharedArrayBuffer(RATES * Int32Array.BYTES_PER_ELEMENT),
    rateTimes: new SharedArrayBuffer(RATES * BigInt64Array.BYTES_PER_ELEMENT),
    claiming: new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT),
  };
}

/** The key of a text, such as that of a Service and a client. */
export function countKey(text: string): CountKey {
  return { home: hashText(text), tag: hashText(`#${text}`) || 1 };
}

/** The counts as one thread uses them. */
export class SharedCounts {
  readonly #cells: Int32Array;
  readonly #own: Int32Array;
  readonly #last: number;
  readonly #claiming: Int32Array;
  /** This thread, and the count of a cell while this thread gives it to another key. */
  readonly #claimed: number;
  readonly #rateTags: Int32Array;
  readonly #rateTimes: BigInt64Array;

  constructor({ cells, own, rateTags, rateTimes, claiming }: CountMemory, thread: number) {
    this.#cells = new Int32Array(cells);
    this.#own = new Int32Array(own[thread]!);
    this.#last = this.#own.length - 1;
    this.#claiming = new Int32Array(claiming);
    this.#claimed = -1 - thread;
    this.#rateTags = new Int32Array(rateTags);
    this.#rateTimes = new BigInt64Array(rateTimes);
  }

  of(key: CountKey): number {
    const cell = this.#find(key);
    return cell === undefined || cell < 0
      ? 0
      : Math.max(0, Atomics.load(this.#cells, 2 * cell + 1));
  }

  /**
   * Counts one more, unless there are `most`. Returns whether it did; it also does not if the memory is
   * full, which takes more connections than may be open.
   */
  add(key: CountKey, most = Infinity): boolean {
    for (;;) {
      const found = this.#find(key);
      const cell = found === undefined || found < 0 ? this.#claim(key) : found;
      if (cell === undefined) return false;
      const count = Atomics.load(this.#cells, 2 * cell + 1);
      if (count >= most) return false;
      if (count < 0 || !this.#change(cell, count, count + 1)) continue;
      // Otherwise another key got the cell meanwhile.
      if (Atomics.load(this.#cells, 2 * cell) === key.tag) {
        Atomics.add(this.#own, cell, 1);
        return true;
      }
      Atomics.sub(this.#cells, 2 * cell + 1, 1);
    }
  }

  /** Takes back what this thread has counted, if anything. */
  remove(key: CountKey): void {
    const cell = this.#find(key);
    if (cell === undefined || cell < 0) return;
    // The main thread may forget this one, which is about to end, at any step.
    const own = Atomics.load(this.#own, cell);
    if (own === 0 || Atomics.compareExchange(this.#own, cell, own, own - 1) !== own) return;
    Atomics.sub(this.#cells, 2 * cell + 1, 1);
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

  /** Takes back all that this thread has counted: it has ended. */
  forgetOwn(): void {
    this.#endClaim();
    for (let cell = 0; cell <= this.#last; cell++) {
      // Plain reads, as there may be a million cells, and no thread writes to these any more.
      if (this.#own[cell] !== 0) {
        Atomics.sub(this.#cells, 2 * cell + 1, Atomics.exchange(this.#own, cell, 0));
      }
      if (this.#cells[2 * cell + 1] === this.#claimed) this.#change(cell, this.#claimed, 0);
    }
  }

  /** The cell of a key, or the inverted number of the first free one; `undefined` = there is none. */
  #find({ home, tag }: CountKey): number | undefined {
    let free: number | undefined;
    for (let step = 0; step < WINDOW; step++) {
      const cell = (home + step) & this.#last;
      const found = Atomics.load(this.#cells, 2 * cell);
      if (found === tag) return cell;
      if (free === undefined && Atomics.load(this.#cells, 2 * cell + 1) === 0) free = ~cell;
      if (found === 0) break;
    }
    return free;
  }

  /**
   * The cell of a key that gets a free one if it has none; `undefined` = there is none. One thread at a
   * time: of two that begin the same key, the second one finds the cell of the first.
   */
  #claim(key: CountKey): number | undefined {
    while (Atomics.compareExchange(this.#claiming, 0, 0, this.#claimed) !== 0);
    let cell = this.#find(key);
    // A thread that looked before the cell was free may still count there, and takes it back.
    while (cell !== undefined && cell < 0 && !this.#change(~cell, 0, this.#claimed)) {
      cell = this.#find(key);
    }
    if (cell !== undefined && cell < 0) {
      cell = ~cell;
      Atomics.store(this.#cells, 2 * cell, key.tag);
      Atomics.store(this.#cells, 2 * cell + 1, 0);
    }
    this.#endClaim();
    return cell;
  }

  #endClaim(): void {
    Atomics.compareExchange(this.#claiming, 0, this.#claimed, 0);
  }

  #change(cell: number, from: number, to: number): boolean {
    return Atomics.compareExchange(this.#cells, 2 * cell + 1, from, to) === from;
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
