/**
 * What `iptables-save` prints, line by line into tables.
 *
 * @module
 */
import type { IptablesTable } from "./iptables_objects.ts";

/** A table as it was printed. */
export interface SavedTable {
  /** Rules of chains that packets enter by themselves, as `INPUT`, without `-A` and the chain. */
  readonly builtIn: ReadonlyMap<string, readonly string[]>;
  /** The same of all other chains. */
  readonly chains: ReadonlyMap<string, readonly string[]>;
  /** Some of its rules only `nft` can show, so the tool printed none: there may be any. */
  readonly isUnreadable?: true;
}

/** The tables that a Service proxy writes to; one that nobody has made has no chains. */
export type SavedTables = Readonly<Record<IptablesTable, SavedTable>>;

/** What is asked of a dump. */
export interface SaveOptions {
  /** Whether the caller can do without a table that the tool cannot print. @default {false} */
  readonly mayLack?: boolean;
}

interface PendingTable {
  readonly builtIn: Map<string, string[]>;
  readonly chains: Map<string, string[]>;
  isUnreadable?: true;
}

/** Takes the lines of a dump. */
export class IptablesSave {
  readonly #tables: Record<IptablesTable, PendingTable> = {
    filter: { builtIn: new Map(), chains: new Map() },
    mangle: { builtIn: new Map(), chains: new Map() },
    nat: { builtIn: new Map(), chains: new Map() },
  };
  #current: PendingTable | "other" | undefined;

  /** Takes a line without its end. Throws a SyntaxError for what no dump has at that place. */
  take(line: string): void {
    if (line.startsWith("#")) {
      const unreadable = /^# Table `(\w+)' is incompatible/.exec(line)?.[1];
      if (unreadable !== undefined && isOurs(unreadable)) {
        this.#tables[unreadable].isUnreadable = true;
      }
      return;
    }
    if (line === "") return;
    if (line.startsWith("*")) this.#begin(line.slice(1));
    else if (this.#current === undefined) throw unexpected(line, "outside of a table");
    else if (line === "COMMIT") this.#current = undefined;
    else if (this.#current !== "other") takeLine(this.#current, line);
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

  #begin(name: string): void {
    if (this.#current !== undefined) throw unexpected(`*${name}`, "inside of another table");
    this.#current = isOurs(name) ? this.#tables[name] : "other";
  }
}

function takeLine(table: PendingTable, line: string): void {
  if (line.startsWith(":")) {
    const [name = "", policy] = line.slice(1).split(" ", 2);
    (policy === "-" ? table.chains : table.builtIn).set(name, []);
    return;
  }
  const [, name = "", rule = ""] = /^(?:\[\d+:\d+\] )?-A (\S+) ?(.*)$/.exec(line) ?? [];
  const rules = table.chains.get(name) ?? table.builtIn.get(name);
  if (rules === undefined) throw unexpected(line, "for a chain that it did not name");
  rules.push(rule);
}

function isOurs(name: string): name is IptablesTable {
  return name === "filter" || name === "mangle" || name === "nat";
}

function unexpected(line: string, where: string): SyntaxError {
  const shown = line.length > 100 ? `${line.slice(0, 100)}…` : line;
  return new SyntaxError(`the dump has ${JSON.stringify(shown)} ${where}`);
}
