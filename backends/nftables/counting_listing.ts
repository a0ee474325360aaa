/**
 * Reads what `nft list table` prints of the table that counts, line by line. Pure but for its own
 * state.
 *
 * @module
 */
import type { EntryId } from "./entry_id.ts";
import type { Direction } from "./counting_table.ts";

/** What one element has counted. */
export interface CountedElement {
  readonly id: EntryId;
  readonly direction: Direction;
  readonly packets: number;
  readonly bytes: number;
}

/** A table as it was read. */
export interface CountingReading {
  readonly elements: readonly CountedElement[];
  /** What was printed beside the elements: sets, chains and rules. */
  readonly frame: string;
}

const SET = /^\tset (\S+) \{$/;
const ELEMENT = /([^\s={}][^={}]*) \. (original|reply) counter packets (\d+) bytes (\d+)/;

/** The table while it is read. */
export class CountingListing {
  readonly #elements: CountedElement[] = [];
  readonly #seen = new Set<string>();
  #isTorn = false;
  #frame = "";
  #set = "";

  /** Whether an element is there twice; see {@linkcode readWhole}. */
  get isTorn(): boolean {
    return this.#isTorn;
  }

  /** Takes the next line, without its line feed. */
  take(line: string): void {
    const [, set] = SET.exec(line) ?? [];
    if (set !== undefined) this.#set = set;
    const [, key, direction, packets, bytes] = ELEMENT.exec(line) ?? [];
    if (key === undefined) {
      this.#frame += `${line}\n`;
      return;
    }
    const name = `${this.#set} ${key} ${direction}`;
    this.#isTorn ||= this.#seen.has(name);
    this.#seen.add(name);
    this.#elements.push({
      id: `${this.#set} ${key}` as EntryId,
      direction: direction === "reply" ? "reply" : "original",
      packets: Number(packets),
      bytes: Number(bytes),
    });
  }

  /** Everything. */
  end(): CountingReading {
    return { elements: this.#elements, frame: this.#frame };
  }
}
