/**
 * The text of `iptables-save`: one parser of its lines, and one reader of all tables.
 *
 * @module
 */
import type { IptablesTable } from "./iptables_objects.ts";

/** A rule as it was printed. */
interface SavedRule {
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

const RULE = /^(?:\[(\d+):\d+\] )?-A (\S+) ?(.*)$/s;

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

/** A table as it was printed. */
export interface SavedTable {
  /** Rules of chains that packets enter by themselves, as `INPUT`, without `-A` and the chain. */
  readonly builtIn: ReadonlyMap<string, readonly string[]>;
  /** The same of all other chains. */
  readonly chains: ReadonlyMap<string, readonly string[]>;
  /** The number of all rules. */
  readonly rules: number;
  /** Only `nft` can show some of its rules, so the tool printed none: there may be any. */
  readonly isUnreadable?: true;
}

/** All tables; of those that kube-relay writes to, one that does not exist has no chains. */
export type SavedTables = Readonly<Record<IptablesTable, SavedTable>>;

/** A rule that leads to another chain. */
interface SavedJump {
  readonly from: string;
  readonly to: string;
  readonly rule: string;
}

/** The rules that lead to chains, in their order. */
export function* jumpsOf({ builtIn, chains }: SavedTable): Generator<SavedJump> {
  for (const [from, rules] of [...builtIn, ...chains]) {
    for (const rule of rules) {
      const to = targetOf(rule);
      if (to !== undefined && chains.has(to)) yield { from, to, rule };
    }
  }
}

interface PendingTable extends SavedTable {
  readonly builtIn: Map<string, string[]>;
  readonly chains: Map<string, string[]>;
  rules: number;
  isUnreadable?: true;
}

/** Most characters of a rule over several lines: comments have 255 at most. */
const LONGEST_OPEN = 8192;

/** Collects the lines of a dump. Strict, because its result is compared and written. */
export class IptablesSave {
  readonly #tables: Record<string, PendingTable> = {};
  readonly #countsOnly: boolean;
  #current: PendingTable | undefined;
  /** A rule whose comment goes on in the next line. */
  #open: string | undefined;

  /** `countsOnly`: only the numbers of rules are kept; they may be 10 MB. */
  constructor({ countsOnly = false } = {}) {
    this.#countsOnly = countsOnly;
  }

  /** Adds a line without its end. Throws a SyntaxError for a line that is invalid at that place. */
  take(part: string): void {
    const text = this.#open === undefined ? part : `${this.#open}\n${part}`;
    this.#open = hasOpenQuote(text) ? text : undefined;
    if (this.#open !== undefined) {
      if (text.length > LONGEST_OPEN) throw unexpected(text, "whose quotes do not end");
      return;
    }
    const line = parseSaveLine(text);
    if (line?.kind === "unreadable") {
      this.#tableOf(line.table).isUnreadable = true;
      return;
    }
    if (line?.kind === "table") {
      if (this.#current !== undefined) throw unexpected(text, "inside of another table");
      this.#current = this.#tableOf(line.table);
      return;
    }
    if (text === "" || text.startsWith("#")) return;
    const table = this.#current;
    if (table === undefined) throw unexpected(text, "outside of a table");
    switch (line?.kind) {
      case "commit":
        this.#current = undefined;
        return;
      case "chain":
        (line.isBuiltIn ? table.builtIn : table.chains).set(line.chain, []);
        return;
      default: {
        const rules = line && (table.chains.get(line.chain) ?? table.builtIn.get(line.chain));
        if (rules === undefined) throw unexpected(text, "for a chain that it did not name");
        table.rules++;
        if (!this.#countsOnly) rules.push(line!.rule);
      }
    }
  }

  /**
   * The tables. Throws a SyntaxError when the dump broke off, and for a table of kube-relay's that could
   * not be printed, unless one `mayLack`.
   */
  end({ mayLack = false } = {}): SavedTables {
    if (this.#current !== undefined || this.#open !== undefined) {
      throw new SyntaxError("the dump breaks off inside of a table: expected COMMIT");
    }
    const { filter = emptyTable(), mangle = emptyTable(), nat = emptyTable() } = this.#tables;
    const own = { filter, mangle, nat };
    for (const [name, { isUnreadable }] of Object.entries(own)) {
      if (isUnreadable && !mayLack) {
        throw new SyntaxError(`table ${name} has rules that only nft can show`);
      }
    }
    // In the order of the dump.
    return { ...this.#tables, ...own };
  }

  #tableOf(name: string): PendingTable {
    return this.#tables[name] ??= emptyTable();
  }
}

/** Whether a line ends within quotes, as that of a comment of several lines. */
function hasOpenQuote(text: string): boolean {
  if (text[0] === "#" || !text.includes('"')) return false;
  const bare = text.includes("\\") ? text.replaceAll(/\\./gs, "") : text;
  let isOpen = false;
  for (let at = bare.indexOf('"'); at >= 0; at = bare.indexOf('"', at + 1)) isOpen = !isOpen;
  return isOpen;
}

function emptyTable(): PendingTable {
  return { builtIn: new Map(), chains: new Map(), rules: 0 };
}

function unexpected(line: string, where: string): SyntaxError {
  const shown = line.length > 100 ? `${line.slice(0, 100)}…` : line;
  return new SyntaxError(`the dump has ${JSON.stringify(shown)} ${where}`);
}
