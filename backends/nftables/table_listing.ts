/**
 * Reads what `nft list table` prints, line by line: a table of 44,000 Services is 10 MB, and has to
 * leave others their turn. Pure but for its own state.
 *
 * Of rules only the print is taken: nft 1.0.6 says them otherwise than it was told, and its JSON form
 * loses as much.
 *
 * @module
 */
import type { TableReading } from "./applied_table.ts";
import { type ContainerName, DYNAMIC_CONTAINER, isContainerName } from "./containers.ts";
import { slotText } from "./slots.ts";

const OPENING = /^\t(set|map|chain) (\S+) \{$/;
const ELEMENTS = /^\t\telements = \{/;
const KEYS_WITH_SLOT: ReadonlySet<ContainerName> = new Set([
  "chains",
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
  readonly #elements = new Map<ContainerName, Map<string, string>>();
  #container: ContainerName | undefined;
  #chain: string | undefined;
  #state: "before" | "table" | "object" | "elements" | "after" = "before";

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
        }
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
      elements: this.#elements,
      rules: this.#rules,
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
      if (/^\t\S.*\{$/.test(line)) {
        this.#state = "object";
        this.#container = undefined;
        this.#chain = undefined;
      }
      return;
    }
    this.#state = "object";
    this.#container = undefined;
    this.#chain = kind === "chain" ? name : undefined;
    if (this.#chain !== undefined) {
      this.#chains.push(name);
      this.#rules.set(name, "");
      return;
    }
    this.#containers.push(name);
    this.#container = isContainerName(name) && name !== DYNAMIC_CONTAINER ? name : undefined;
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
      const key = at < 0 ? text : text.slice(0, at);
      const value = at < 0 ? "" : text.slice(at + 3);
      elements.set(
        KEYS_WITH_SLOT.has(container) ? withSlot(key) : key,
        VALUES_WITH_SLOT.has(container) ? parseSlot(value) : value,
      );
    }
  }
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
