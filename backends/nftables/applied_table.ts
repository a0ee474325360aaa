/**
 * What the kernel is known to hold of ours. Pure but for its own state.
 *
 * Elements are kept as the entries that they were rendered from; as text only between a reading of
 * the table and the next write.
 *
 * @module
 */
import { chainName } from "./chain_spec.ts";
import type { EntryId } from "./claims.ts";
import type { ContainerName, Element } from "./containers.ts";
import { chainOf, type Entry } from "./entry.ts";

/** Values of elements by their keys; of sets, the empty text. */
export type TableElements = ReadonlyMap<ContainerName, ReadonlyMap<string, string>>;

/** A table of ours as it was read. */
export interface TableReading {
  /** Names of chains, those of other versions included. */
  readonly chains: readonly string[];
  /** Names of sets and maps, those of other versions included. */
  readonly containers: readonly string[];
  readonly elements: TableElements;
}

/** What will be there once a transaction was taken. */
export interface AppliedChanges {
  /** Whether the table and its base chains were written. */
  readonly base: boolean;
  /** Chains that were written. */
  readonly chains: readonly string[];
  /** Entries that were written; `undefined` = it went. */
  readonly entries: readonly (readonly [EntryId, Entry | undefined])[];
  /** Absent = as before. */
  readonly shared?: readonly Element[];
  /** Chains that were taken away. @default {none} */
  readonly removedChains?: readonly string[];
}

/** The table, as far as it is known. */
export class AppliedTable {
  readonly #entries = new Map<EntryId, Entry>();
  /** How many entries lead to a chain. */
  readonly #users = new Map<string, number>();
  #chains = new Set<string>();
  #shared: readonly Element[] = [];
  #hasBase = false;
  #reading: TableReading | undefined;
  #isKnown = false;

  /** Whether what the kernel holds is known: a table was adopted, and nothing failed since. */
  get isKnown(): boolean {
    return this.#isKnown;
  }

  /** Whether the base chains are there as they are wanted. */
  get hasBase(): boolean {
    return this.#hasBase;
  }

  /** What was read and not yet compared. */
  get reading(): TableReading | undefined {
    return this.#reading;
  }

  /** The elements that belong to no Service. */
  get shared(): readonly Element[] {
    return this.#shared;
  }

  /** Entries that are there. */
  get entryCount(): number {
    return this.#entries.size;
  }

  /** An entry that is there. */
  entry(id: EntryId): Entry | undefined {
    return this.#entries.get(id);
  }

  /** Whether a chain is there with just the rules that it should have. */
  hasChain(name: string): boolean {
    return this.#chains.has(name);
  }

  /** Chains that nothing leads to any more. */
  idleChains(): readonly string[] {
    return [...this.#chains].filter((name) => !this.#users.has(name));
  }

  /** The table was read, or is known to be absent: what was known before is void. */
  adopt(reading: TableReading | undefined): void {
    this.forget();
    this.#isKnown = true;
    this.#reading = reading;
  }

  /** Nothing is known of the table. */
  forget(): void {
    this.#entries.clear();
    this.#users.clear();
    this.#chains = new Set();
    this.#shared = [];
    this.#hasBase = false;
    this.#reading = undefined;
    this.#isKnown = false;
  }

  /** A transaction was taken. */
  confirm({ base, chains, entries, shared, removedChains = [] }: AppliedChanges): void {
    if (base) this.#hasBase = true;
    this.#reading = undefined;
    if (shared) this.#shared = shared;
    for (const name of chains) this.#chains.add(name);
    for (const name of removedChains) this.#chains.delete(name);
    for (const [id, entry] of entries) {
      this.#count(this.#entries.get(id), -1);
      this.#count(entry, 1);
      if (entry === undefined) this.#entries.delete(id);
      else this.#entries.set(id, entry);
    }
  }

  #count(entry: Entry | undefined, step: 1 | -1): void {
    const spec = entry && chainOf(entry);
    if (spec === undefined) return;
    const name = chainName(spec);
    const users = (this.#users.get(name) ?? 0) + step;
    if (users === 0) this.#users.delete(name);
    else this.#users.set(name, users);
  }
}
