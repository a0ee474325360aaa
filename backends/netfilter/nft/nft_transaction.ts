/**
 * Input for one `nft -f -`, which the kernel applies atomically. Pure.
 *
 * @module
 */
import type { NftChain, NftContainer, NftTable } from "./nft_objects.ts";

/** A chain that is written, and the owners of its rules, in their order. */
export interface ChainChange extends NftChain {
  /** @default {the rules have none} */
  readonly ruleOwners?: readonly (string | undefined)[];
}

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
export class ElementLines {
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

/** The input, to which lines are added in the order in which they are applied. */
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

  /** Whether there is nothing to do. */
  get isEmpty(): boolean {
    return this.lineCount === 0;
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
    this.#line(`${action} ${this.#table}${rest === "" ? "" : ` ${rest}`}`, owner);
  }

  /** Declares a set or map. */
  declare(name: string, { kind, declaration }: NftContainer): void {
    this.add(`add ${kind}`, `${name} { ${declaration} ; }`);
  }

  /** Makes chains, or empties them. */
  chains(chains: readonly NftChain[]): void {
    for (const { name, hook } of chains) {
      // Includes the policy: properties of an existing chain that the text omits stay as another
      // program set them.
      this.add("add chain", hook === undefined ? name : `${name} { ${hook} ; policy accept ; }`);
      this.add("flush chain", name);
    }
  }

  /** Fills chains, all of which have to be there: a rule may name any of them. */
  rules(chains: readonly ChainChange[]): void {
    for (const { name, rules, ruleOwners } of chains) {
      for (const [index, rule] of rules.entries()) {
        this.add("add rule", `${name} ${rule}`, ruleOwners?.[index]);
      }
    }
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
    this.#line("}", undefined);
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

  #line(line: string, owner: string | undefined): void {
    this.#text.add(line);
    this.#owners.push(owner);
  }
}
