/**
 * The text of `iptables-save`: one parser of its lines, for any table, and readers
 * that keep all rules, or one value for each rule.
 *
 * @module
 */
import type { IptablesTable } from "./iptables_objects.ts";

/** A rule as it was printed. */
export interface SavedRule {
  readonly kind: "rule";
  readonly chain: string;
  /** Without `-A` and the chain. */
  readonly rule: string;
  /** Packets that matched; only where the dump was asked for counters. */
  readonly packets?: number;
}

/** A line of a dump, read. */
type SaveLine =
  | { readonly kind: "table"; readonly table: string }
  /** `isBuiltIn`: packets enter it by themselves, as `INPUT`. */
  | { readonly kind: "chain"; readonly chain: string; readonly isBuiltIn: boolean }
  | SavedRule
  | { readonly kind: "commit" }
  /** A table with rules that only `nft` can show: the tool printed none of them. */
  | { readonly kind: "unreadable"; readonly table: string };

const RULE = /^(?:\[(\d+):\d+\] )?-A (\S+) ?(.*)$/;

/** Reads a line without its end; `undefined` for a comment, and for whatever no dump has. */
export function parseSaveLine(line: string): SaveLine | undefined {
  switch (line[0]) {
    case "*":
      return { kind: "table", table: line.slice(1) };
    case ":": {
      const [chain = "", policy] = line.slice(1).split(" ", 2);
      return { kind: "chain", chain, isBuiltIn: policy !== "-" };
    }
    case "#": {
      const table = /^# Table `(\w+)' is incompatible/.exec(line)?.[1];
      return table === undefined ? undefined : { kind: "unreadable", table };
    }
    case "C":
      return line === "COMMIT" ? { kind: "commit" } : undefined;
    default: {
      const [, packets, chain, rule = ""] = RULE.exec(line) ?? [];
      if (chain === undefined) return undefined;
      const counted = packets === undefined ? {} : { packets: Number(packets) };
      return { kind: "rule", chain, rule, ...counted };
    }
  }
}

/** Returns the target of a rule, after `-j` or `-g`. A comment may also contain `-j`. */
export function targetOf(rule: string): string | undefined {
  const bare = rule.includes("--comment")
    ? rule.replace(/ --comment ("(?:\\.|[^"\\])*"|\S+)/g, "")
    : rule;
  return /(?:^| )-[jg] (\S+)/.exec(bare)?.[1];
}

/** Parses the lines of a dump and stores a value for each rule. Skips all other lines. */
export class SavedRules<T> {
  /** By `table chain`, in the order of the rules. Chains without a value are left out. */
  readonly rules = new Map<string, T[]>();
  readonly #valueOf: (rule: SavedRule) => T | undefined;
  #table = "";

  constructor(valueOf: (rule: SavedRule) => T | undefined) {
    this.#valueOf = valueOf;
  }

  /** Takes a line without its end. */
  take(text: string): void {
    const line = parseSaveLine(text);
    if (line?.kind === "table") this.#table = line.table;
    if (line?.kind !== "rule") return;
    const value = this.#valueOf(line);
    if (value === undefined) return;
    const place = `${this.#table} ${line.chain}`;
    const values = this.rules.get(place);
    if (values) values.push(value);
    else this.rules.set(place, [value]);
  }
}

/** A table as it was printed. */
export interface SavedTable {
  /** Rules of chains that packets enter by themselves, as `INPUT`, without `-A` and the chain. */
  readonly builtIn: ReadonlyMap<string, readonly string[]>;
  /** The same of all other chains. */
  readonly chains: ReadonlyMap<string, readonly string[]>;
  /** Only `nft` can show some of its rules, so the tool printed none: there may be any. */
  readonly isUnreadable?: true;
}

/** The tables that kube-relay writes to; one that does not exist has no chains. */
export type SavedTables = Readonly<Record<IptablesTable, SavedTable>>;

/** The options of a dump. */
export interface SaveOptions {
  /** Whether the caller can do without a table that the tool cannot print. @default {false} */
  readonly mayLack?: boolean;
}

interface PendingTable {
  readonly builtIn: Map<string, string[]>;
  readonly chains: Map<string, string[]>;
  isUnreadable?: true;
}

/**
 * Collects the lines of a dump with all rules. Strict, because its result is compared and written.
 */
export class IptablesSave {
  readonly #tables: Record<IptablesTable, PendingTable> = {
    filter: { builtIn: new Map(), chains: new Map() },
    mangle: { builtIn: new Map(), chains: new Map() },
    nat: { builtIn: new Map(), chains: new Map() },
  };
  #current: PendingTable | "other" | undefined;

  /** Adds a line without its end. Throws a SyntaxError for a line that is invalid at that place. */
  take(text: string): void {
    const line = parseSaveLine(text);
    if (line?.kind === "unreadable") {
      if (isOurs(line.table)) this.#tables[line.table].isUnreadable = true;
    } else if (line?.kind === "table") {
      if (this.#current !== undefined) throw unexpected(text, "inside of another table");
      this.#current = isOurs(line.table) ? this.#tables[line.table] : "other";
    } else if (text !== "" && !text.startsWith("#")) {
      if (this.#current === undefined) throw unexpected(text, "outside of a table");
      if (line?.kind === "commit") this.#current = undefined;
      else if (this.#current !== "other") takeLine(this.#current, text, line);
    }
  }

  /**
   * The tables. Throws a SyntaxError when the dump broke off, and for a table that could not be
   * printed, unless one `mayLack`.
   */
  end({ mayLack = false }: SaveOptions = {}): SavedTables {
    if (this.#current !== undefined) {
      throw new SyntaxError("the dump breaks off inside of a table: expected COMMIT");
    }
    const unreadable = Object.entries(this.#tables).find(([, table]) => table.isUnreadable)?.[0];
    if (unreadable !== undefined && !mayLack) {
      throw new SyntaxError(`table ${unreadable} has rules that only nft can show`);
    }
    return this.#tables;
  }
}

function takeLine(
  { chains, builtIn }: PendingTable,
  text: string,
  line: SaveLine | undefined,
): void {
  if (line?.kind === "chain") {
    (line.isBuiltIn ? builtIn : chains).set(line.chain, []);
    return;
  }
  const rules = line?.kind === "rule"
    ? chains.get(line.chain) ?? builtIn.get(line.chain)
    : undefined;
  if (line?.kind !== "rule" || rules === undefined) {
    throw unexpected(text, "for a chain that it did not name");
  }
  rules.push(line.rule);
}

function isOurs(name: string): name is IptablesTable {
  return name === "filter" || name === "mangle" || name === "nat";
}

function unexpected(line: string, where: string): SyntaxError {
  const shown = line.length > 100 ? `${line.slice(0, 100)}…` : line;
  return new SyntaxError(`the dump has ${JSON.stringify(shown)} ${where}`);
}
