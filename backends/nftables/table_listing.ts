/**
 * Reads what `nft list table` prints, line by line: a table of 44,000 Services is 10 MB, and has to
 * leave others their turn. Pure but for its own state.
 *
 * Of rules only the print is taken: nft 1.0.6 says them otherwise than it was told, and its JSON form
 * loses as much.
 *
 * @module
 */
import { withUndottedAddresses } from "../netfilter/undotted_address.ts";
import type { TableReading } from "./applied_table.ts";
import {
  type ContainerName,
  DYNAMIC_CONTAINER,
  isContainerName,
  PROTOCOL_NAMES,
} from "./containers.ts";
import { slotText } from "./slots.ts";

const OPENING = /^\t(set|map|chain) (\S+) \{$/;
const ELEMENTS = /^\t\telements = \{/;
const KEYS_WITH_SLOT: ReadonlySet<ContainerName> = new Set([
  "numbered-chains",
  "endpoints",
  "node-port-endpoints",
  "choices",
  "node-port-choices",
]);
const VALUES_WITH_SLOT: ReadonlySet<ContainerName> = new Set([
  "service-ips",
  "node-ports",
  "choices",
  "node-port-choices",
]);

/** A table while it is read. */
export class TableListing {
  readonly #chains: string[] = [];
  readonly #containers: string[] = [];
  readonly #rules = new Map<string, string>();
  readonly #declarations = new Map<string, string>();
  readonly #elements = new Map<ContainerName, Map<string, string>>();
  #isDormant = false;
  #isTorn = false;
  /** The set or map, also one that is not ours. */
  #declared: string | undefined;
  #container: ContainerName | undefined;
  #chain: string | undefined;
  #state: "before" | "table" | "object" | "elements" | "after" = "before";

  /** Whether a set or map has an element twice; see {@linkcode readWhole}. */
  get isTorn(): boolean {
    return this.#isTorn;
  }

  /** Takes the next line, without its line feed. Throws a SyntaxError that quotes it. */
  take(line: string): void {
    switch (this.#state) {
      case "before":
        if (!/^table \S+ \S+ \{/.test(line)) throw unexpected(line, "the head of a table");
        this.#state = "table";
        return;
      case "table":
        return this.#open(line);
      case "object":
        if (line === "\t}") this.#state = "table";
        else if (ELEMENTS.test(line)) this.#take(line.replace(ELEMENTS, ""));
        else if (this.#chain !== undefined) {
          this.#rules.set(this.#chain, `${this.#rules.get(this.#chain)}${line}\n`);
        } else if (this.#declared !== undefined) this.#declare(this.#declared, line);
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
    return {
      chains: this.#chains,
      containers: this.#containers,
      declarations: this.#declarations,
      elements: this.#elements,
      rules: this.#rules,
      isDormant: this.#isDormant,
    };
  }

  #open(line: string): void {
    if (line === "}") {
      this.#state = "after";
      return;
    }
    const [, kind, name] = OPENING.exec(line) ?? [];
    if (name === undefined) {
      // Comments and flags of the table, and what it holds beside.
      if (/^\tflags .*\bdormant\b/.test(line)) this.#isDormant = true;
      if (/^\t\S.*\{$/.test(line)) {
        this.#state = "object";
        this.#container = undefined;
        this.#declared = undefined;
        this.#chain = undefined;
      }
      return;
    }
    this.#state = "object";
    this.#container = undefined;
    this.#declared = kind === "chain" ? undefined : name;
    this.#chain = kind === "chain" ? name : undefined;
    if (this.#chain !== undefined) {
      this.#chains.push(name);
      this.#rules.set(name, "");
      return;
    }
    this.#containers.push(name);
    this.#declarations.set(name, `${kind}\n`);
    this.#container = isContainerName(name) && name !== DYNAMIC_CONTAINER ? name : undefined;
  }

  /** Newer tools say in a comment how many elements there are. */
  #declare(name: string, line: string): void {
    this.#declarations.set(
      name,
      `${this.#declarations.get(name)}${line.replace(/\s*#.*/, "").trim()}\n`,
    );
  }

  /** The elements of a line; the last one of all has a brace after it. */
  #take(line: string): void {
    const isLast = line.endsWith("}");
    this.#state = isLast ? "object" : "elements";
    const container = this.#container;
    if (container === undefined) return;
    const elements = this.#elements.get(container) ?? new Map<string, string>();
    this.#elements.set(container, elements);
    for (const item of (isLast ? line.slice(0, -1) : line).split(",")) {
      const text = item.trim();
      if (text === "") continue;
      const at = text.indexOf(" : ");
      const key = keyAsWritten(at < 0 ? text : text.slice(0, at), container);
      const value = at < 0 ? "" : withUndottedAddresses(text.slice(at + 3));
      const written = KEYS_WITH_SLOT.has(container) ? withSlot(key) : key;
      this.#isTorn ||= elements.has(written);
      elements.set(written, VALUES_WITH_SLOT.has(container) ? parseSlot(value) : value);
    }
  }
}

const KEYS_WITHOUT_PROTOCOL: ReadonlySet<ContainerName> = new Set([
  "numbered-chains",
  "hairpin",
  "cluster-ips",
  "service-cidrs",
  "node-port-ips",
]);

/** What the tool prints of a key, in the words that it was written with. */
function keyAsWritten(text: string, container: ContainerName): string {
  const key = withUndottedAddresses(text);
  if (KEYS_WITHOUT_PROTOCOL.has(container)) return key;
  const start = container.startsWith("node-port") ? 0 : key.indexOf(" . ") + 3;
  const end = key.indexOf(" ", start);
  // Where the machine has no list of protocols, the tool prints their numbers.
  const name = PROTOCOL_NAMES[key.slice(start, end)];
  return name === undefined ? key : key.slice(0, start) + name + key.slice(end);
}

function withSlot(key: string): string {
  const at = key.lastIndexOf(" ") + 1;
  return key.slice(0, at) + parseSlot(key.slice(at));
}

/** A priority is printed as a handle of traffic control: two halves of 16 bits, or a word for one. */
function parseSlot(text: string): string {
  if (text === "root") return slotText(0xffff_ffff);
  const [, major, minor] = /^([0-9a-f]{0,4}):([0-9a-f]{0,4})$/.exec(text) ?? [];
  if (major === undefined || minor === undefined) return text;
  return slotText(parseInt(major || "0", 16) * 0x1_0000 + parseInt(minor || "0", 16));
}

function unexpected(line: string, wanted: string): SyntaxError {
  return new SyntaxError(
    `Cannot read the table of nftables: expected ${wanted}, found '${line.slice(0, 80)}'`,
  );
}
