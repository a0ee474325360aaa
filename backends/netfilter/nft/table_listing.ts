/**
 * Reads the output of `nft list` line by line: a table of 44,000 Services is 10 MB, and the event
 * loop must stay responsive. Pure except for its own state.
 *
 * Rules are kept as printed: nft 1.0.6 prints them in another form than the input, and its JSON
 * form loses as much. Elements must not have comments, which may contain commas.
 *
 * @module
 */
import type { NftContainer, NftTable } from "./nft_objects.ts";
import { withUndottedAddresses } from "../undotted_address.ts";

/** The counter of one element. */
export interface NftCounter {
  readonly packets: number;
  readonly bytes: number;
}

/** Values of elements by their keys, by set or map; of sets, the empty text. */
export type TableElements = ReadonlyMap<string, ReadonlyMap<string, string>>;

/** A table as it was read. */
export interface TableReading {
  /** The print of each set and map besides its elements: its kind, then a part in each line. */
  readonly declarations: ReadonlyMap<string, string>;
  /** Sets and maps, except those that rules fill (`flags dynamic`). */
  readonly elements: TableElements;
  /** For sets and maps whose elements are compared. */
  readonly counters: ReadonlyMap<string, ReadonlyMap<string, NftCounter>>;
  /** The print of each chain: its hook, if it has one, and its rules. */
  readonly rules: ReadonlyMap<string, string>;
  /** Whether the table is dormant, so that the kernel skips all of it. */
  readonly isDormant: boolean;
}

/** The table that begins with a line; `undefined` = none does. */
export function readTableHead(line: string): NftTable | undefined {
  const [, family, name] = /^table (\w+) (\S+)(?: \{|$)/.exec(line) ?? [];
  return family === undefined || name === undefined ? undefined : { family, name };
}

/**
 * The chain, set, map or other object that begins with a line of a table; `undefined` = none does.
 * Handles are only printed with `--handle`.
 */
export function readObjectHead(
  line: string,
):
  | { readonly kind: string; readonly name: string; readonly handle: string | undefined }
  | undefined {
  const [, kind, name, handle] = /^\t(\S+(?: \S+)?) (\S+) \{(?: # handle (\d+))?$/.exec(line) ?? [];
  return kind === undefined || name === undefined ? undefined : { kind, name, handle };
}

const ELEMENTS = /^\t\telements = \{/;
const COUNTED = /^(.*?) counter packets (\d+) bytes (\d+)/;

/** A set or map while it is read. */
class OpenContainer {
  readonly elements = new Map<string, string>();
  readonly counters = new Map<string, NftCounter>();
  print: string;
  isTorn = false;
  isDynamic = false;
  counts = false;
  #spellKey = spellingOf("");
  #spellValue = spellingOf("");

  constructor(kind: "map" | "set") {
    this.print = `${kind}\n`;
  }

  /** Newer tools print in a comment how many elements there are. */
  declare(line: string): void {
    const part = line.replace(/\s*#.*/, "").trim();
    this.print += `${part}\n`;
    const [, key, value = ""] = /^type (.*?)(?: : (.*))?$/.exec(part) ?? [];
    if (key !== undefined) {
      this.#spellKey = spellingOf(key);
      this.#spellValue = spellingOf(value);
    }
    if (/^flags .*\bdynamic\b/.test(part)) this.isDynamic = true;
    if (part === "counter") this.counts = true;
  }

  /** Takes the elements of a line. */
  take(line: string): void {
    if (this.isDynamic) return;
    for (const item of line.split(",")) {
      const text = item.trim();
      if (text === "") continue;
      const at = text.indexOf(" : ");
      const [, counted, packets, bytes] = (this.counts ? COUNTED.exec(text) : undefined) ?? [];
      const key = this.#spellKey(counted ?? (at < 0 ? text : text.slice(0, at)));
      this.isTorn ||= this.elements.has(key);
      this.elements.set(key, at < 0 ? "" : this.#spellValue(text.slice(at + 3)));
      if (counted === undefined) continue;
      this.counters.set(key, { packets: Number(packets), bytes: Number(bytes) });
    }
  }
}

/** A table while it is read. */
export class TableListing {
  readonly #rules = new Map<string, string>();
  readonly #containers = new Map<string, OpenContainer>();
  #isDormant = false;
  #container: OpenContainer | undefined;
  #chain: string | undefined;
  #state: "before" | "table" | "object" | "elements" | "after" = "before";

  /** Whether a set or map has an element twice; then another one is missing. */
  get isTorn(): boolean {
    return this.#containers.values().some(({ isTorn }) => isTorn);
  }

  /** Takes the next line, without its line feed. Throws a SyntaxError that quotes it. */
  take(line: string): void {
    switch (this.#state) {
      case "before":
        if (readTableHead(line) === undefined) throw unexpected(line, "the head of a table");
        this.#state = "table";
        return;
      case "table":
        return this.#open(line);
      case "object":
        if (line === "\t}") this.#state = "table";
        else if (ELEMENTS.test(line)) this.#take(line.replace(ELEMENTS, ""));
        else if (this.#chain !== undefined) {
          this.#rules.set(this.#chain, `${this.#rules.get(this.#chain)}${line}\n`);
        } else this.#container?.declare(line);
        return;
      case "elements":
        return this.#take(line);
      case "after":
        if (line !== "") throw unexpected(line, "nothing more");
    }
  }

  /** The table. Throws a SyntaxError where its end is missing: the tool was stopped. */
  end(): TableReading {
    if (this.#state !== "after") throw unexpected("", "the end of the table");
    const containers = [...this.#containers];
    return {
      declarations: new Map(containers.map(([name, { print }]) => [name, print])),
      elements: mapsOf(containers.map(([name, { elements }]) => [name, elements])),
      counters: mapsOf(containers.map(([name, { counters }]) => [name, counters])),
      rules: this.#rules,
      isDormant: this.#isDormant,
    };
  }

  #open(line: string): void {
    if (line === "}") {
      this.#state = "after";
      return;
    }
    const head = readObjectHead(line);
    if (head === undefined) {
      // Comments and flags of the table.
      if (/^\tflags .*\bdormant\b/.test(line)) this.#isDormant = true;
      return;
    }
    this.#state = "object";
    this.#chain = head.kind === "chain" ? head.name : undefined;
    this.#container = undefined;
    if (this.#chain !== undefined) this.#rules.set(this.#chain, "");
    if (head.kind !== "map" && head.kind !== "set") return;
    this.#container = new OpenContainer(head.kind);
    this.#containers.set(head.name, this.#container);
  }

  /** The elements of a line; the last one of all has a brace after it. */
  #take(line: string): void {
    const isLast = line.endsWith("}");
    this.#state = isLast ? "object" : "elements";
    this.#container?.take(isLast ? line.slice(0, -1) : line);
  }
}

/** Without the empty ones. */
function mapsOf<T>(
  maps: readonly (readonly [string, ReadonlyMap<string, T>])[],
): ReadonlyMap<string, ReadonlyMap<string, T>> {
  return new Map(maps.filter(([, map]) => map.size > 0));
}

function unexpected(line: string, wanted: string): SyntaxError {
  return new SyntaxError(`expected ${wanted}, found '${line.slice(0, 80)}'`);
}

/**
 * The names of protocols for machines without a list of protocols, on which the tool prints their
 * numbers.
 */
const PROTOCOL_NAMES: Readonly<Record<string, string>> = { 6: "tcp", 17: "udp", 132: "sctp" };

/** Names the protocols in a printed rule, also those of a set within it. */
export function withProtocolNames(rule: string): string {
  return rule.replaceAll(
    /\b(?:l4proto|protocol|nexthdr) (?:\d+\b|\{ [\d, ]+ \})/g,
    (text) => text.replaceAll(/(?<= )\d+/g, (number) => PROTOCOL_NAMES[number] ?? number),
  );
}

/** The printed forms by type. Other types are printed as they are written. */
const SPELLINGS: ReadonlyMap<string, (text: string) => string> = new Map([
  ["classid", (text: string) => classidText(text) ?? text],
  ["inet_proto", (text: string) => PROTOCOL_NAMES[text] ?? text],
  ["ipv6_addr", withUndottedAddresses],
]);

/** Returns what converts a printed key or value of these types, e.g. `ipv4_addr . inet_proto`, to its written form. */
function spellingOf(types: string): (text: string) => string {
  const parts = types.split(" . ").flatMap((type, index) => {
    const spell = SPELLINGS.get(type);
    return spell ? [{ index, spell }] : [];
  });
  if (parts.length === 0) return (text) => text;
  return (text) => {
    const words = text.split(" . ");
    for (const { index, spell } of parts) {
      const word = words[index];
      if (word !== undefined) words[index] = spell(word);
    }
    return words.join(" . ");
  };
}

/**
 * The priority of a packet as it is written, e.g. `0x80000001`. It is printed as a handle of traffic
 * control: two halves of 16 bits, of which an empty one is 0, or a word for one. `undefined` = the
 * text is none.
 */
export function classidText(text: string): string | undefined {
  if (text === "root") return "0xffffffff";
  const [, major, minor] = /^([0-9a-f]{0,4}):([0-9a-f]{0,4})$/.exec(text) ?? [];
  if (major === undefined || minor === undefined) return undefined;
  const number = parseInt(major || "0", 16) * 0x1_0000 + parseInt(minor || "0", 16);
  return `0x${number.toString(16)}`;
}

/**
 * Whether a printed set or map is declared with the same types and time-out. Tools of other
 * versions print more properties, or expressions in place of types.
 */
export function isDeclaredAs({ kind, declaration }: NftContainer, print: string): boolean {
  const wanted = `${kind}\n${declaration.replaceAll(" ; ", "\n")}`;
  return !/^type /m.test(print) || decidingLines(print) === decidingLines(wanted);
}

function decidingLines(print: string): string {
  return print.split("\n").filter((line) => DECIDING.test(line)).sort().join("\n");
}

const DECIDING = /^(map|set|type .*|flags .*|timeout .*|counter)$/;

/** Priorities with a name in nft. Those of families other than `ip` and `ip6` are left out. */
const PRIORITIES: Readonly<Record<string, number>> = {
  raw: -300,
  mangle: -150,
  dstnat: -100,
  filter: 0,
  security: 50,
  srcnat: 100,
};

/**
 * Returns the hook of a chain in one spelling: `type nat hook prerouting priority dstnat + 10;
 * policy accept;` becomes `type nat hook prerouting priority -90 policy accept`.
 */
export function normalHook(text: string): string {
  const [, head = "", word = "", sign = "", offset = "", policy = "accept"] =
    /^(type \S+ hook \S+(?: device \S+)?) priority (-?\w+)(?: ([+-]) (\d+))?;?(?: policy (\w+);?)?/
      .exec(text.trim()) ?? [];
  if (head === "") return text.trim();
  const base = PRIORITIES[word] ?? Number(word);
  const priority = base + Number(`${sign}${offset || 0}`);
  return `${head} priority ${priority} policy ${policy}`;
}

/** Splits the print of a chain into its hook, if it has one, and its rules. */
export function readChainPrint(
  print: string,
): { readonly hook: string | undefined; readonly rules: readonly string[] } {
  const lines = print.split("\n").map((line) => line.trim()).filter((line) => line !== "");
  const [first] = lines;
  if (first === undefined || !/^type \S+ hook /.test(first)) {
    return { hook: undefined, rules: lines };
  }
  return { hook: normalHook(first), rules: lines.slice(1) };
}
