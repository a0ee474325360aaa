/**
 * Input for one `nft -f -`, which the kernel applies atomically. Pure.
 *
 * @module
 */
import type { NftChain, NftContainer, NftTable, NftTableSpec } from "./nft_objects.ts";

/** A chain that is written, and its owner. */
export interface ChainChange<Owner extends string> extends NftChain {
  readonly owner?: Owner | undefined;
  /** The owners of its rules, in their order. @default {the chain's owner} */
  readonly ruleOwners?: readonly (Owner | undefined)[];
}

/** A set or map, of whatever types. */
type NamedContainer = Pick<NftContainer, "kind"> & { readonly name: string };

/**
 * The changes, by kind, written in this order. Each kind is written as a whole. Absent = nothing.
 */
export interface NftChanges<Owner extends string, Name extends string> {
  /** Whether the table is deleted first, because it cannot be kept. */
  readonly replacesTable?: boolean;
  /** Sets and maps to declare, after the table; absent = the table exists. */
  readonly declared?: Iterable<Name> | undefined;
  /** Chains to delete before they are made: their hook cannot be changed. */
  readonly recreated?: readonly string[];
  /** Chains to make, or to empty, and fill. */
  readonly chains?: readonly ChainChange<Owner>[];
  /** Sets and maps that lose all elements first. */
  readonly emptied?: readonly Name[];
  /** Elements to delete, in the order of the table's sets and maps. */
  readonly removed?: ReadonlyMap<Name, ElementLines<Owner>>;
  /** Elements to add. */
  readonly added?: ReadonlyMap<Name, ElementLines<Owner>>;
  /** Chains to delete. No rule or element may lead to them. */
  readonly removedChains?: readonly string[];
  /** Sets and maps to delete, that no rule names. */
  readonly removedContainers?: readonly NamedContainer[];
}

/** Few enough lines that they are joined while they are young: older ones stay until a full collection. */
const PIECE_CHARACTERS = 8_192;
/** Well under a millisecond. */
const OWNERS_PER_STEP = 50_000;
/** They have few rules each. */
const CHAINS_PER_STEP = 256;

/** Text in pieces, to which lines are joined: a line of its own takes three times the memory. */
class TextPieces {
  readonly pieces: string[] = [];
  readonly #separator: string;
  #lines: string[] = [];
  #characters = 0;

  constructor(separator: string) {
    this.#separator = separator;
  }

  add(line: string): void {
    if (this.#characters >= PIECE_CHARACTERS) this.close(this.#separator);
    this.#lines.push(line);
    this.#characters += line.length + this.#separator.length;
  }

  /** Ends a piece by this text. */
  close(end: string): void {
    if (this.#lines.length === 0) return;
    // Part of a line, since joined lines with something behind them would be copied once more.
    this.#lines.push(`${this.#lines.pop()}${end}`);
    this.pieces.push(this.#lines.join(this.#separator));
    this.#lines = [];
    this.#characters = 0;
  }
}

/** The text of elements of one set or map, one on each line. A first load has 100,000 of them. */
export class ElementLines<Owner extends string> {
  /** By line. */
  readonly owners: (Owner | undefined)[] = [];
  readonly #verb: "add" | "delete";
  readonly #text = new TextPieces(",\n");
  #first = "";

  constructor(verb: "add" | "delete") {
    this.#verb = verb;
  }

  /** The only element of them, on no line of its own; `undefined` = there are none or several. */
  get only(): string | undefined {
    return this.owners.length === 1 ? this.#first : undefined;
  }

  add(key: string, value: string | undefined, owner: Owner | undefined): void {
    const text = this.#verb === "add" && value !== undefined ? `${key} : ${value}` : key;
    if (this.owners.length === 0) this.#first = text;
    this.owners.push(owner);
    this.#text.add(`  ${text}`);
  }

  /** The text in pieces; it is complete now. */
  pieces(): readonly string[] {
    this.#text.close("\n");
    return this.#text.pieces;
  }
}

/** The input. */
export class NftTransaction<Owner extends string = string> {
  readonly elements: number;
  readonly lineCount: number;
  /** All of them ASCII. */
  readonly characters: number;
  readonly #pieces: readonly string[];
  readonly #owners: readonly (Owner | undefined)[];

  private constructor(draft: Draft<Owner>) {
    this.elements = draft.elements;
    this.lineCount = draft.owners.length;
    this.#pieces = draft.pieces();
    this.#owners = draft.owners;
    this.characters = this.#pieces.reduce((sum, { length }) => sum + length, 0);
  }

  /** Makes a transaction in short steps, so that other work can run between two of them. */
  static *steps<Owner extends string, Name extends string>(
    table: NftTableSpec<Name>,
    changes: NftChanges<Owner, Name>,
  ): Generator<void, NftTransaction<Owner>, void> {
    const { containers } = table;
    const { added, chains = [], declared, removed, removedChains = [] } = changes;
    for (const name of [...removed?.keys() ?? [], ...added?.keys() ?? []]) known(containers, name);
    const draft = new Draft<Owner>(table);
    let written = 0;
    // Deleting one that another program has removed meanwhile would fail.
    if (changes.replacesTable) { for (const verb of ["add", "delete"]) draft.add(`${verb} table`); }
    if (declared) draft.add("add table");
    for (const name of declared ?? []) {
      const { kind, declaration } = known(containers, name);
      draft.add(`add ${kind}`, `${name} { ${declaration} ; }`);
    }
    for (const name of changes.recreated ?? []) draft.add("delete chain", name);
    for (const chain of chains) draft.chain(chain);
    for (const name of changes.emptied ?? []) {
      draft.add(`flush ${known(containers, name).kind}`, name);
    }
    // Before the additions: a value is changed by deleting its element and adding it again.
    for (const name of containers.keys()) yield* draft.change("delete", name, removed?.get(name));
    // The rules of a chain may name chains that come after it.
    for (const chain of chains) {
      draft.rules(chain);
      if (++written % CHAINS_PER_STEP === 0) yield;
    }
    for (const name of containers.keys()) yield* draft.change("add", name, added?.get(name));
    // Chains of another version may lead to each other.
    for (const action of ["flush chain", "delete chain"]) {
      for (const name of removedChains) draft.add(action, name);
    }
    for (const { kind, name } of changes.removedContainers ?? []) draft.add(`delete ${kind}`, name);
    return new NftTransaction(draft);
  }

  /** Whether there is nothing to do. */
  get isEmpty(): boolean {
    return this.lineCount === 0;
  }

  /** The owner of a line, such as a ServicePort. Lines count from 1, as in the tool's messages. */
  ownerOf(line: number): Owner | undefined {
    return this.#owners[line - 1];
  }

  /** The lines, made again for this call. */
  toLines(): readonly string[] {
    return this.#pieces.join("").split("\n").slice(0, -1);
  }

  /** The input in pieces of whole lines. */
  text(): readonly string[] {
    return this.#pieces;
  }
}

/** A transaction under way. */
class Draft<Owner extends string> {
  /** By line. */
  readonly owners: (Owner | undefined)[] = [];
  elements = 0;
  readonly #text = new TextPieces("\n");
  readonly #table: string;

  constructor({ family, name }: NftTable) {
    this.#table = `${family} ${name}`;
  }

  /** The text in pieces; it is complete now. */
  pieces(): readonly string[] {
    this.#text.close("\n");
    return this.#text.pieces;
  }

  add(action: string, rest = "", owner?: Owner): void {
    this.#line(`${action} ${this.#table}${rest === "" ? "" : ` ${rest}`}`, owner);
  }

  chain({ name, hook, owner }: ChainChange<Owner>): void {
    // Includes the policy: properties of an existing chain that the text omits stay as another
    // program set them.
    const place = hook === undefined ? name : `${name} { ${hook} ; policy accept ; }`;
    this.add("add chain", place, owner);
    this.add("flush chain", name, owner);
  }

  rules({ name, rules, owner, ruleOwners }: ChainChange<Owner>): void {
    for (const [index, rule] of rules.entries()) {
      this.add("add rule", `${name} ${rule}`, ruleOwners ? ruleOwners[index] : owner);
    }
  }

  /** Writes one element on each line, so that the tool's messages identify a refused one. */
  *change(
    verb: "add" | "delete",
    container: string,
    lines: ElementLines<Owner> | undefined,
  ): Generator<void, void, void> {
    if (lines === undefined) return;
    const { only, owners } = lines;
    this.elements += owners.length;
    if (owners.length === 0) return;
    if (only !== undefined) {
      this.add(`${verb} element`, `${container} { ${only} }`, owners[0]);
      return;
    }
    this.add(`${verb} element`, `${container} {`);
    this.#text.close("\n");
    for (const piece of lines.pieces()) this.#text.pieces.push(piece);
    for (const [index, owner] of owners.entries()) {
      this.owners.push(owner);
      if (index % OWNERS_PER_STEP === OWNERS_PER_STEP - 1) yield;
    }
    this.#line("}", undefined);
  }

  #line(line: string, owner: Owner | undefined): void {
    this.#text.add(line);
    this.owners.push(owner);
  }
}

function known<Name extends string, T>(containers: ReadonlyMap<Name, T>, name: Name): T {
  const container = containers.get(name);
  if (container === undefined) throw new Error(`Cannot write '${name}': the table has no such set`);
  return container;
}
