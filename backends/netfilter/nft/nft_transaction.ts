/**
 * Input for one `nft -f -`, which the kernel applies atomically. Pure.
 *
 * @module
 */
import type { ObjectName, Objects } from "../../../lib/engine/reconciler.ts";
import type { NftChain, NftContainer, NftTable, NftTableSpec } from "./nft_objects.ts";

/** Few enough lines that they are joined while they are young: older ones stay until a full collection. */
const PIECE_CHARACTERS = 8_192;

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
class ElementLines {
  /** By line. */
  readonly owners: (string | undefined)[] = [];
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

  add(key: string, value: string | undefined, owner: string | undefined): void {
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
export class NftTransaction {
  /** Elements added or deleted. */
  elements = 0;
  readonly #table: string;
  readonly #text = new TextPieces("\n");
  /** By line. */
  readonly #owners: (string | undefined)[] = [];

  constructor({ family, name }: NftTable) {
    this.#table = `${family} ${name}`;
  }

  get lineCount(): number {
    return this.#owners.length;
  }

  /** All of them ASCII. */
  get characters(): number {
    return this.text().reduce((sum, { length }) => sum + length, 0);
  }

  /** Adds a line about the table or an object of it, e.g. `delete chain` and its name. */
  add(action: string, rest = "", owner?: string): void {
    this.#text.add(`${action} ${this.#table}${rest === "" ? "" : ` ${rest}`}`);
    this.#owners.push(owner);
  }

  /** Writes one element on each line, so that the tool's messages identify a refused one. */
  change(verb: "add" | "delete", container: string, lines: ElementLines): void {
    const { only, owners } = lines;
    this.elements += owners.length;
    if (only !== undefined) {
      this.add(`${verb} element`, `${container} { ${only} }`, owners[0]);
      return;
    }
    this.add(`${verb} element`, `${container} {`);
    this.#text.close("\n");
    for (const piece of lines.pieces()) this.#text.pieces.push(piece);
    for (const owner of owners) this.#owners.push(owner);
    this.#text.add("}");
    this.#owners.push(undefined);
  }

  /** The owner of a line, such as a ServicePort. Lines count from 1, as in the tool's messages. */
  ownerOf(line: number): string | undefined {
    return this.#owners[line - 1];
  }

  /** The lines, made again for this call. */
  toLines(): readonly string[] {
    return this.text().join("").split("\n").slice(0, -1);
  }

  /** The input in pieces of whole lines. */
  text(): readonly string[] {
    this.#text.close("\n");
    return this.#text.pieces;
  }
}

/** The changes of a transaction. */
export class NftDraft {
  replacesTable = false;
  readonly declared: string[] = [];
  readonly emptied: string[] = [];
  readonly recreated: string[] = [];
  readonly chains: NftChain[] = [];
  readonly removed = new Map<string, ElementLines>();
  readonly added = new Map<string, ElementLines>();
  readonly removedChains: string[] = [];
  readonly removedContainers: (Pick<NftContainer, "kind"> & { readonly name: string })[] = [];
  /** Chains, sets and maps that are not wanted. */
  unused: {
    readonly kind: "chain" | "map" | "set";
    readonly name: string;
    readonly text: string;
  }[] = [];
  /** Chains that were out of use. */
  readonly used: string[] = [];
  readonly #ownerOf: OwnerOfLine | undefined;
  readonly #idle: ReadonlyMap<string, string>;
  readonly #intervals: Objects;
  /** Intervals that go, by set. */
  readonly #gone = new Map<string, Set<string>>();

  /** `idle`: chains out of use, that are still there. `intervals`: those that were found, by set. */
  constructor(
    { ownerOf, idle = new Map(), intervals = new Map() }: {
      readonly ownerOf?: OwnerOfLine | undefined;
      readonly idle?: ReadonlyMap<string, string>;
      readonly intervals?: Objects;
    } = {},
  ) {
    this.#ownerOf = ownerOf;
    this.#idle = idle;
    this.#intervals = intervals;
  }

  add(
    object: ObjectName,
    before: string | undefined,
    after: string | undefined,
    owner?: string,
  ): void {
    const { kind, name } = object;
    switch (kind) {
      case "table":
        this.replacesTable = before !== undefined;
        return;
      case "set":
      case "map":
        if (after === undefined) this.unused.push({ kind, name, text: "" });
        else if (before === undefined) this.declared.push(name);
        // All its elements are added.
        else this.emptied.push(name);
        return;
      case "chain": {
        if (after === undefined) {
          this.unused.push({ kind, name, text: before ?? "" });
          return;
        }
        // It is still as it was written.
        if (before === undefined && this.#idle.get(name) === after && !this.replacesTable) {
          this.used.push(name);
          return;
        }
        const chain = readChainText(after);
        if (before !== undefined && readChainText(before).hook !== chain.hook) {
          this.recreated.push(name);
        }
        this.chains.push({ name, ...chain });
        return;
      }
      default: {
        const lineOwner = this.#ownerOf ? this.#ownerOf(object) : owner;
        if (before !== undefined) {
          if (this.#intervals.has(kind)) {
            this.#gone.getOrInsertComputed(kind, () => new Set()).add(name);
          } else {this.removed.getOrInsertComputed(kind, () => new ElementLines("delete"))
              .add(name, undefined, lineOwner);}
        }
        if (after !== undefined) {
          this.added.getOrInsertComputed(kind, () => new ElementLines("add"))
            .add(name, after || undefined, lineOwner);
        }
      }
    }
  }

  /**
   * Has sets that lose intervals written anew: intervals that take the place of others must not meet
   * them, not even in one transaction.
   */
  emptyIntervals(): void {
    for (const [name, gone] of this.#gone) {
      this.emptied.push(name);
      for (const key of this.#intervals.get(name)?.keys() ?? []) {
        if (gone.has(key)) continue;
        this.added.getOrInsertComputed(name, () => new ElementLines("add"))
          .add(key, undefined, undefined);
      }
    }
  }

  /** Everything that was added, in an order that the kernel accepts. */
  transaction(spec: NftTableSpec): NftTransaction {
    const { containers } = spec;
    const transaction = new NftTransaction(spec);
    const kindOf = (name: string) => containers.get(name)!.kind;
    // Deleting one that another program has removed meanwhile would fail.
    if (this.replacesTable) {
      for (const verb of ["add", "delete"]) transaction.add(`${verb} table`);
    }
    if (this.declared.length > 0 || this.replacesTable) transaction.add("add table");
    for (const name of this.declared) {
      const { kind, declaration } = containers.get(name)!;
      transaction.add(`add ${kind}`, `${name} { ${declaration} ; }`);
    }
    for (const name of this.recreated) transaction.add("delete chain", name);
    for (const { name, hook } of this.chains) {
      // Includes the policy: properties of an existing chain that the text omits stay as another
      // program set them.
      const text = hook === undefined ? name : `${name} { ${hook} ; policy accept ; }`;
      transaction.add("add chain", text);
      transaction.add("flush chain", name);
    }
    for (const name of this.emptied) transaction.add(`flush ${kindOf(name)}`, name);
    // Before the additions: a value is changed by deleting its element and adding it again.
    const change = (verb: "add" | "delete", lines: ReadonlyMap<string, ElementLines>) => {
      for (const name of containers.keys()) {
        const own = lines.get(name);
        if (own) transaction.change(verb, name, own);
      }
    };
    change("delete", this.removed);
    // All chains are there by now: a rule may name any of them.
    for (const { name, rules } of this.chains) {
      for (const rule of rules) {
        transaction.add(
          "add rule",
          `${name} ${rule}`,
          this.#ownerOf?.({ kind: "chain", name }, rule),
        );
      }
    }
    change("add", this.added);
    // Chains of another version may lead to each other.
    for (const action of ["flush chain", "delete chain"]) {
      for (const name of this.removedChains) transaction.add(action, name);
    }
    for (const { kind, name } of this.removedContainers) transaction.add(`delete ${kind}`, name);
    return transaction;
  }
}

/** The item of a plan that an element belongs to, or a rule of a chain. */
export type OwnerOfLine = (object: ObjectName, rule?: string) => string | undefined;

/** The text of a chain, as an object. */
export function chainText({ hook, rules }: Pick<NftChain, "hook" | "rules">): string {
  return [hook ?? "", ...rules].join("\n");
}

/** The opposite of {@linkcode chainText}. */
export function readChainText(text: string): Pick<NftChain, "hook" | "rules"> {
  const [hook, ...rules] = text.split("\n");
  return { hook: hook === "" ? undefined : hook, rules };
}
