/**
 * The part of the kernel's state that is known. Pure except for its own state.
 *
 * Elements are kept as the entries that they were rendered from. Their text is kept only between a
 * read of the table and the next write.
 *
 * @module
 */
import type { TableReading } from "../netfilter/nft/table_listing.ts";
import { LAYOUT_MARK } from "./base_chains.ts";
import { chainName } from "./chain_spec.ts";
import type { EntryId } from "./entry_id.ts";
import type { Element } from "./containers.ts";
import { chainOf, type EndpointOrder, type Entry } from "./entry.ts";

/** The state after a transaction succeeds. */
export interface AppliedChanges {
  /** Chains that exist now and were unknown before. */
  readonly chains: readonly string[];
  /** The lines that the tool prints for each of them: its hook, if it has one, and its rules. */
  readonly printedLines?: ReadonlyMap<string, number>;
  /** Entries that were written. */
  readonly entries: readonly Entry[];
  /** Entries that were removed. @default {none} */
  readonly removedEntries?: readonly EntryId[];
  /** Absent = as before. */
  readonly shared?: readonly Element[];
  /** Existing chains without a number. @default {none} */
  readonly unnumberedChains?: readonly string[];
  /** Chains that were removed. @default {none} */
  readonly removedChains?: readonly string[];
}

/** The table, as far as it is known. */
export class AppliedTable {
  #entries = new Map<EntryId, Entry>();
  /**
   * The entries when all were last known. The table itself does not contain the numbering of
   * endpoints.
   */
  #lastEntries: ReadonlyMap<EntryId, Entry> = new Map();
  /** The number of entries that lead to each chain. */
  readonly #users = new Map<string, number>();
  /** The printed forms of correct chains. */
  readonly #prints = new Map<string, string>();
  /**
   * Chains that this process wrote with the rules that they are to have now, and the lines that the tool
   * prints for each. What it printed before is not known to be right: an earlier process may have had
   * other settings, and another program may have restored its rules.
   */
  readonly #ownChains = new Map<string, number>();
  /** The printed forms of correct sets and maps. */
  #declarations: ReadonlyMap<string, string> = new Map();
  readonly #chains = new Set<string>();
  readonly #unnumberedChains = new Set<string>();
  #shared: readonly Element[] = [];
  #reading: TableReading | undefined;
  #state: "unknown" | "read" | "written" = "unknown";
  #changedObjects = 0;
  #isDamaged = false;

  /** Whether the content of the kernel is known: it was read, and no write failed since. */
  get isKnown(): boolean {
    return this.#state !== "unknown";
  }

  /** Whether every entry is known; otherwise all of them are compared. */
  get isWritten(): boolean {
    return this.#state === "written";
  }

  /** The last read, if it was not compared yet. */
  get reading(): TableReading | undefined {
    return this.#reading;
  }

  /**
   * The number of chains, sets and maps that differed from the previous read, and of tables that
   * the kernel ignored.
   */
  get changedObjects(): number {
    return this.#changedObjects;
  }

  /** Whether the table must be replaced: it has another layout, or cannot be repaired. */
  get isToBeReplaced(): boolean {
    return this.#reading !== undefined &&
      (this.#isDamaged || !this.#reading.rules.has(LAYOUT_MARK));
  }

  /** The elements that belong to no Service. */
  get shared(): readonly Element[] {
    return this.#shared;
  }

  /** Existing chains with the correct rules. */
  get chains(): ReadonlySet<string> {
    return this.#chains;
  }

  /** All existing entries; while they are unknown, those of the last known state. */
  lastEntries(): Iterable<Entry> {
    return (this.isWritten ? this.#entries : this.#lastEntries).values();
  }

  /**
   * Returns how the endpoints of an entry are numbered, or were when the table was last known.
   * Numbering them in the order of the plan would move endpoints without need.
   */
  order(id: EntryId): EndpointOrder | undefined {
    return this.#entries.get(id) ?? this.#lastEntries.get(id);
  }

  /** An existing entry. */
  entry(id: EntryId): Entry | undefined {
    return this.#entries.get(id);
  }

  /** Chains that no number leads to. */
  get unnumberedChains(): ReadonlySet<string> {
    return this.#unnumberedChains;
  }

  /** Chains that no entry leads to; those that are always there among them. */
  idleChains(): readonly string[] {
    return [...this.#chains].filter((name) => !this.#users.has(name));
  }

  /**
   * Returns the chains whose rules, and sets and maps whose types, differ from an earlier read, and
   * the chains that another program added rules to. Pure.
   */
  changesIn(reading: TableReading | undefined): readonly string[] {
    return [
      ...[...reading?.declarations ?? []].filter(([name, text]) =>
        (this.#declarations.get(name) ?? text) !== text
      ),
      ...[...reading?.rules ?? []].filter(([name, rules]) => this.#isChanged(name, rules)),
    ].map(([name]) => name);
  }

  /**
   * Adopts a read of the table, or its absence; earlier knowledge is void. The tool prints rules
   * differently from its input, so they are compared with an earlier print. A chain is rewritten once
   * before it has one.
   */
  adopt(reading: TableReading | undefined): void {
    this.forget();
    this.#state = "read";
    this.#reading = reading;
    if (reading?.isDormant) this.#changedObjects++;
    this.#adoptDeclarations(reading?.declarations ?? new Map());
    if (this.isToBeReplaced) {
      this.#prints.clear();
      return;
    }
    for (const [name, rules] of reading?.rules ?? []) {
      if (this.#isChanged(name, rules)) {
        this.#changedObjects++;
        this.#prints.delete(name);
      } else if (this.#prints.has(name)) this.#chains.add(name);
      // One with fewer lines is from a listing that the kernel cut off.
      else if (linesOf(rules) === this.#ownChains.get(name)) this.#prints.set(name, rules);
    }
  }

  /** Like {@linkcode adopt}, for a table that cannot be repaired and is replaced. */
  adoptDamaged(reading: TableReading | undefined): void {
    this.adopt(reading);
    this.#isDamaged = true;
    this.#chains.clear();
    this.#prints.clear();
    this.#declarations = new Map();
  }

  /** Forgets the table, except for the numbers of endpoints. */
  forget(): void {
    if (this.isWritten) this.#lastEntries = this.#entries;
    this.#entries = new Map();
    this.#users.clear();
    this.#chains.clear();
    this.#unnumberedChains.clear();
    this.#shared = [];
    this.#reading = undefined;
    this.#state = "unknown";
    this.#changedObjects = 0;
    this.#isDamaged = false;
  }

  /** Chains are to have other rules from now on. */
  forgetRules(): void {
    this.forget();
    this.#prints.clear();
    this.#ownChains.clear();
  }

  /** A transaction was taken. */
  confirm(changes: AppliedChanges): void {
    const { chains, entries, shared, unnumberedChains = [], removedChains = [] } = changes;
    const { printedLines = new Map(), removedEntries = [] } = changes;
    // An earlier print may belong to a former chain of the same name.
    for (const name of this.#state === "written" ? chains : []) this.#prints.delete(name);
    this.#state = "written";
    this.#reading = undefined;
    this.#lastEntries = new Map();
    if (shared) this.#shared = shared;
    for (const name of unnumberedChains) {
      this.#unnumberedChains.add(name);
      this.#chains.delete(name);
    }
    for (const name of chains) {
      this.#chains.add(name);
      this.#ownChains.set(name, printedLines.get(name) ?? 0);
      this.#unnumberedChains.delete(name);
    }
    for (const name of removedChains) {
      this.#unnumberedChains.delete(name);
      this.#chains.delete(name);
      this.#prints.delete(name);
      this.#ownChains.delete(name);
    }
    for (const id of removedEntries) {
      this.#count(this.#entries.get(id), -1);
      this.#entries.delete(id);
    }
    for (const entry of entries) {
      this.#count(this.#entries.get(entry.id), -1);
      this.#count(entry, 1);
      this.#entries.set(entry.id, entry);
    }
  }

  /** Whether another program changed a chain, as far as it is known how the right one is printed. */
  #isChanged(name: string, rules: string): boolean {
    const print = this.#prints.get(name);
    if (print !== undefined) return print !== rules;
    return linesOf(rules) > (this.#ownChains.get(name) ?? Infinity);
  }

  /** If a set or map was recreated with other types, all rules and elements must go. */
  #adoptDeclarations(declarations: ReadonlyMap<string, string>): void {
    for (const [name, text] of declarations) {
      if ((this.#declarations.get(name) ?? text) === text) continue;
      this.#changedObjects++;
      this.#isDamaged = true;
    }
    this.#declarations = this.#isDamaged ? new Map() : declarations;
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

function linesOf(print: string): number {
  return print.split("\n").length - 1;
}
