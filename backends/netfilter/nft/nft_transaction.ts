/**
 * Input for one `nft -f -`, which the kernel applies atomically. Pure.
 *
 * @module
 */
import type { NftChain, NftContainer, NftElement, NftTable, NftTableSpec } from "./nft_objects.ts";

/** An element that is added or deleted, and its owner. */
export interface ElementChange<Owner extends string, Name extends string> {
  readonly element: NftElement<Name>;
  readonly owner?: Owner | undefined;
}

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
  readonly removed?: ReadonlyMap<Name, readonly ElementChange<Owner, Name>[]>;
  /** Elements to add. */
  readonly added?: ReadonlyMap<Name, readonly ElementChange<Owner, Name>[]>;
  /** Chains to delete. No rule or element may lead to them. */
  readonly removedChains?: readonly string[];
  /** Sets and maps to delete, that no rule names. */
  readonly removedContainers?: readonly NamedContainer[];
}

/** About as much as a pipe takes at once. */
const CHUNK_CHARACTERS = 65_536;
/** Well under a millisecond. */
const LINES_PER_STEP = 2_000;
/** They have few rules each. */
const CHAINS_PER_STEP = 256;

/** The input, line by line. */
export class NftTransaction<Owner extends string = string> {
  readonly lines: readonly string[];
  /** Elements that are added or deleted. */
  readonly elements: number;
  readonly #owners: ReadonlyMap<number, Owner>;

  private constructor({ lines, elements, owners }: Draft<Owner>) {
    this.lines = lines;
    this.elements = elements;
    this.#owners = owners;
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
    for (const name of containers.keys()) yield* draft.change("delete", removed?.get(name));
    // The rules of a chain may name chains that come after it.
    for (const chain of chains) {
      draft.rules(chain);
      if (++written % CHAINS_PER_STEP === 0) yield;
    }
    for (const name of containers.keys()) yield* draft.change("add", added?.get(name));
    // Chains of another version may lead to each other.
    for (const action of ["flush chain", "delete chain"]) {
      for (const name of removedChains) draft.add(action, name);
    }
    for (const { kind, name } of changes.removedContainers ?? []) draft.add(`delete ${kind}`, name);
    return new NftTransaction(draft);
  }

  /** Whether there is nothing to do. */
  get isEmpty(): boolean {
    return this.lines.length === 0;
  }

  /** The owner of a line, such as a ServicePort. Lines count from 1, as in the tool's messages. */
  ownerOf(line: number): Owner | undefined {
    return this.#owners.get(line);
  }

  /** The input in pieces of about 64 KiB. */
  *text(): Generator<string> {
    let piece = "";
    for (const line of this.lines) {
      piece += `${line}\n`;
      if (piece.length < CHUNK_CHARACTERS) continue;
      yield piece;
      piece = "";
    }
    if (piece !== "") yield piece;
  }
}

/** A transaction under way. */
class Draft<Owner extends string> {
  readonly lines: string[] = [];
  readonly owners = new Map<number, Owner>();
  elements = 0;
  readonly #table: string;

  constructor({ family, name }: NftTable) {
    this.#table = `${family} ${name}`;
  }

  add(action: string, rest = "", owner?: Owner): void {
    this.lines.push(`${action} ${this.#table}${rest === "" ? "" : ` ${rest}`}`);
    this.#note(owner);
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
    changes: readonly ElementChange<Owner, string>[] = [],
  ): Generator<void, void, void> {
    const [first, ...others] = changes;
    if (first === undefined) return;
    const { container } = first.element;
    this.elements += changes.length;
    const textOf = ({ element: { key, value } }: ElementChange<Owner, string>) =>
      verb === "add" && value !== undefined ? `${key} : ${value}` : key;
    if (others.length === 0) {
      this.add(`${verb} element`, `${container} { ${textOf(first)} }`, first.owner);
      return;
    }
    this.add(`${verb} element`, `${container} {`);
    for (const [index, change] of changes.entries()) {
      const { owner } = change;
      this.lines.push(`  ${textOf(change)}${index < changes.length - 1 ? "," : ""}`);
      this.#note(owner);
      if (index % LINES_PER_STEP === LINES_PER_STEP - 1) yield;
    }
    this.lines.push("}");
  }

  #note(owner: Owner | undefined): void {
    if (owner !== undefined) this.owners.set(this.lines.length, owner);
  }
}

function known<Name extends string, T>(containers: ReadonlyMap<Name, T>, name: Name): T {
  const container = containers.get(name);
  if (container === undefined) throw new Error(`Cannot write '${name}': the table has no such set`);
  return container;
}
