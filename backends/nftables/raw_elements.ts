/**
 * Elements of the table as `nft --debug=netlink` says them: the words of memory that the kernel sent,
 * a line for each. With `--terse` beside it, nft makes no text of them, which is a third of its time.
 * Pure but for its own state.
 *
 * Whatever has another form than expected makes the whole of it void: tools of other versions print
 * it otherwise, and what they print as text has all.
 *
 * @module
 */
import type { IpFamily } from "../../lib/net/ip_address.ts";
import type { TableElements, TableReading } from "./applied_table.ts";
import {
  type Container,
  CONTAINER_NAMES,
  type ContainerName,
  containersOf,
  declarationPrint,
  DYNAMIC_CONTAINER,
  type Element,
  isContainerName,
  PROTOCOL_NAMES,
} from "./containers.ts";
import { EXPRESSIONS } from "./expressions.ts";
import { addressText, cidrsOfBounds, type IntervalBound, rangeText } from "./intervals.ts";
import { SCRATCH_TABLE } from "./rule_code.ts";
import { slotText } from "./slots.ts";

/** What the line of each element begins with. */
export const ELEMENT = "\telement ";
const END = " [end]";
/** What nft adds, for itself, to the beginning of an interval that reaches to the last address of all. */
const OPEN_END = "  userdata = { \\x01\\x04\\x01\\x00\\x00\\x00 }";

/** One part of a key or value. */
interface Field {
  /** 32-bit words of memory. */
  readonly words: number;
  /** Of the words of a text, from the one of this index on. */
  readonly text: (words: string, index: number) => string;
}

/** What the elements of a set or map are made of. */
interface ElementForm {
  /** As nft prints the declaration. */
  readonly declared: string;
  readonly key: readonly Field[];
  /** `undefined` in sets. */
  readonly value: readonly Field[] | "verdict" | undefined;
  /** `range`: the last part of a key is one; `bounds`: elements are where intervals begin and end. */
  readonly intervals: "none" | "range" | "bounds";
}

/** An element of which each part would be another one in another order of bytes. */
export function sampleElement(family: IpFamily): Element & { readonly text: string } {
  const container = "service-ips";
  const key = `${SAMPLE_ADDRESSES[family]} . tcp . 80`;
  const value = "0x86d0b95b";
  const name = `${EXPRESSIONS[family].table} ${SCRATCH_TABLE}`;
  const { declaration } = containersOf(family)[container];
  const text = `add table ${name}\n` +
    `add map ${name} ${container} { ${declaration} ; }\n` +
    `add element ${name} ${container} { ${key} : ${value} }\n`;
  return { container, key, value, text };
}

const SAMPLE_ADDRESSES: Readonly<Record<IpFamily, string>> = {
  IPv4: "1.2.3.4",
  IPv6: "fd00:1:2:3:4:5:6:7",
};

/** The elements, while they are read. */
export class RawElements {
  readonly #head: string;
  readonly #forms: ReadonlyMap<ContainerName, ElementForm>;
  readonly #elements = new Map<ContainerName, Map<string, string>>();
  readonly #bounds = new Map<ContainerName, IntervalBound[]>();
  readonly #seen = new Set<string>();
  readonly #family: IpFamily;
  #container: ContainerName | undefined;
  #isVoid = false;

  constructor(family: IpFamily, table: string) {
    this.#family = family;
    this.#head = `${EXPRESSIONS[family].table} ${table} @`;
    const containers = containersOf(family);
    const address = addressField(family);
    this.#forms = new Map(
      CONTAINER_NAMES.filter((name) => name !== DYNAMIC_CONTAINER)
        .map((name) => [name, formOf(containers[name], address)]),
    );
  }

  /** Takes the next line, without its line feed; those of other things too. */
  take(line: string): void {
    if (line.startsWith(ELEMENT)) {
      if (this.#container !== undefined && !this.#isVoid) this.#take(this.#container, line);
      return;
    }
    this.#container = undefined;
    if (!line.startsWith(this.#head)) return;
    const name = line.slice(this.#head.length);
    // Somebody else wrote to the kernel meanwhile: nft threw away what it had, and begins anew.
    if (this.#seen.has(name)) this.#reset();
    this.#seen.add(name);
    if (isContainerName(name) && name !== DYNAMIC_CONTAINER) this.#container = name;
  }

  /**
   * What was read of sets and maps that are declared so; `undefined` = something has another form than
   * expected. One that is not declared as ours is has elements with parts that no line here tells of.
   */
  end(declarations: TableReading["declarations"]): TableElements | undefined {
    for (const [container, bounds] of this.#bounds) {
      const cidrs = cidrsOfBounds(bounds, this.#family);
      if (cidrs.length === 0) continue;
      this.#elements.set(container, new Map(cidrs.map((cidr) => [cidr, ""])));
    }
    const isWhole = !this.#isVoid && [...declarations].every(([name, text]) => {
      if (!this.#seen.has(name)) return false;
      const form = isContainerName(name) ? this.#forms.get(name) : undefined;
      return form === undefined || form.declared === text;
    });
    return isWhole ? this.#elements : undefined;
  }

  #take(container: ContainerName, line: string): void {
    const form = this.#forms.get(container);
    const at = line.indexOf(" : ");
    if (form === undefined || at < 0) return this.#giveUp();
    if (form.intervals === "bounds" && line.endsWith(OPEN_END)) {
      line = line.slice(0, -OPEN_END.length);
    }
    if (!line.endsWith(END)) return this.#giveUp();
    const key = line.slice(ELEMENT.length, at).trimEnd();
    // The last word is the element's flags.
    const flagsAt = line.lastIndexOf(" ", line.length - END.length - 1);
    const flags = line.slice(flagsAt + 1, -END.length);
    const value = valueText(line.slice(at + 3, flagsAt), form);
    if (value === undefined) return this.#giveUp();
    if (form.intervals === "bounds") return this.#takeBound(container, key, flags);
    const text = form.intervals === "range" ? rangeKey(key, form) : fieldsText(key, form.key);
    if (text === undefined || flags !== "0") return this.#giveUp();
    const elements = this.#elements.get(container) ?? new Map<string, string>();
    this.#elements.set(container, elements);
    elements.set(text, value);
  }

  #takeBound(container: ContainerName, key: string, flags: string): void {
    const words = wordsOf(key);
    if (words === undefined || !/^[01]$/.test(flags)) return this.#giveUp();
    const bounds = this.#bounds.get(container) ?? [];
    this.#bounds.set(container, bounds);
    bounds.push({ address: bigOf(words), isEnd: flags === "1" });
  }

  #reset(): void {
    this.#elements.clear();
    this.#bounds.clear();
    this.#seen.clear();
    this.#isVoid = false;
  }

  #giveUp(): void {
    this.#isVoid = true;
  }
}

function formOf(container: Container, address: Field): ElementForm {
  const [types = "", ...rest] = container.declaration.split(" ; ");
  const [key = "", value] = types.replace("type ", "").split(" : ");
  const fields = (text: string) => text.split(" . ").map((type) => fieldOf(type, address));
  const isInterval = rest.includes("flags interval");
  return {
    declared: declarationPrint(container),
    key: fields(key),
    value: value === undefined || value === "verdict" ? value : fields(value),
    intervals: !isInterval ? "none" : key.includes(" . ") ? "range" : "bounds",
  };
}

function fieldOf(type: string, address: Field): Field {
  switch (type) {
    case "ipv4_addr":
    case "ipv6_addr":
      return address;
    case "inet_proto":
      return {
        words: 1,
        text: numberText((word) => PROTOCOL_NAMES[word & 0xff] ?? `${word & 0xff}`),
      };
    case "inet_service":
      return { words: 1, text: numberText((word) => `${(word & 0xff) << 8 | word >>> 8 & 0xff}`) };
    case "classid":
      return { words: 1, text: numberText(slotText) };
  }
  throw new Error(`Cannot read elements of type '${type}'`);
}

/** Words are printed as numbers of the machine, and every machine that Deno runs on is little-endian. */
function bytesOf(word: number): readonly [number, number, number, number] {
  return [word & 0xff, word >>> 8 & 0xff, word >>> 16 & 0xff, word >>> 24];
}

function numberText(text: (word: number) => string): Field["text"] {
  return (words, index) => text(wordAt(words, index));
}

function addressField(family: IpFamily): Field {
  if (family === "IPv4") return { words: 1, text: numberText((word) => bytesOf(word).join(".")) };
  // Each address is in several sets and maps.
  const known = new Map<string, string>();
  const text: Field["text"] = (words, index) => {
    const own = words.slice(index * STRIDE, (index + 4) * STRIDE - 1);
    const before = known.get(own);
    if (before !== undefined) return before;
    const text = addressText(bigOf(wordsOf(own) ?? []), family);
    known.set(own, text);
    return text;
  };
  return { words: 4, text };
}

/** The address that words of memory are, as a number. */
function bigOf(words: readonly number[]): bigint {
  return words.flatMap(bytesOf).reduce((sum, byte) => sum << 8n | BigInt(byte), 0n);
}

const WORDS = /^[0-9a-f]{8}(?: [0-9a-f]{8})*$/;
/** Characters of a word, and of the space after it. */
const WORD_LENGTH = 8;
const STRIDE = 9;

function wordAt(text: string, index: number): number {
  return parseInt(text.slice(index * STRIDE, index * STRIDE + WORD_LENGTH), 16);
}

function wordsOf(text: string): readonly number[] | undefined {
  if (!WORDS.test(text)) return undefined;
  return Array.from({ length: (text.length + 1) / STRIDE }, (_, index) => wordAt(text, index));
}

function fieldsText(text: string, fields: readonly Field[]): string | undefined {
  if (!WORDS.test(text)) return undefined;
  let at = 0;
  let written = "";
  for (const field of fields) {
    if ((at + field.words) * STRIDE > text.length + 1) return undefined;
    if (at > 0) written += " . ";
    written += field.text(text, at);
    at += field.words;
  }
  return at * STRIDE === text.length + 1 ? written : undefined;
}

function valueText(text: string, { value }: ElementForm): string | undefined {
  if (value === undefined) return text === "" ? "" : undefined;
  if (value !== "verdict") return fieldsText(text, value);
  return /^\w+(?: -> \S+)?$/.test(text) ? text.replace(" -> ", " ") : undefined;
}

/** A key whose last part alone is a range of addresses. */
function rangeKey(text: string, { key }: ElementForm): string | undefined {
  const [from = "", to = from] = text.split("  - ");
  const fields = key.slice(0, -1);
  const length = fields.reduce((sum, field) => sum + field.words, 0);
  const sides = [from, to].map(wordsOf);
  const [first, last] = sides.map((words) => words?.slice(length));
  if (first?.length !== key.at(-1)?.words || first?.length !== last?.length) return undefined;
  const head = (words: readonly number[] | undefined) => words?.slice(0, length).join();
  if (head(sides[0]) !== head(sides[1])) return undefined;
  const front = fieldsText(from.split(" ").slice(0, length).join(" "), fields);
  if (front === undefined || first === undefined || last === undefined) return undefined;
  const family = first.length === 1 ? "IPv4" : "IPv6";
  return `${front} . ${rangeText([bigOf(first), bigOf(last)], family)}`;
}
