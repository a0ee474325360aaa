/**
 * Reduces the output of `iptables-save` to chains and the jumps to them. A node with 10,000
 * Services prints 44,000 rules, so they are counted, not kept.
 *
 * @module
 */
import { parseSaveLine, type SavedRule, targetOf } from "./iptables_save.ts";

/** A rule that sends packets to a chain of other software. */
export interface FoundJump {
  readonly from: string;
  readonly to: string;
  /** The rule as the tool prints it, without `-A` and the chain. */
  readonly rule: string;
}

/** One table. */
export interface DumpedTable {
  readonly name: string;
  /** Chains that packets enter by themselves, as `INPUT`. */
  readonly builtIn: ReadonlySet<string>;
  /** All other chains, with the number of their rules. */
  readonly chains: ReadonlyMap<string, number>;
  /** The jumps that were asked for, in the order of the rules. */
  readonly jumps: readonly FoundJump[];
  /** Rules of all chains. */
  readonly rules: number;
}

/** All tables of one rule set. */
export interface IptablesDump {
  readonly tables: readonly DumpedTable[];
  /** Tables that the tool could not print, such as those with rules that only `nft` understands. */
  readonly unreadable: readonly string[];
}

/** Selects the jumps to keep. */
export type JumpFilter = (table: string, jump: Pick<FoundJump, "from" | "to">) => boolean;

interface PendingTable {
  readonly name: string;
  readonly builtIn: Set<string>;
  readonly chains: Map<string, number>;
  readonly jumps: FoundJump[];
  rules: number;
}

/** Parses a dump line by line. Skips irrelevant lines. */
export class IptablesDumpReader {
  readonly #keepJump: JumpFilter;
  readonly #tables: PendingTable[] = [];
  readonly #unreadable: string[] = [];
  #table: PendingTable | undefined;

  constructor(keepJump: JumpFilter) {
    this.#keepJump = keepJump;
  }

  /** The chains and jumps read so far. */
  get dump(): IptablesDump {
    return { tables: this.#tables, unreadable: this.#unreadable };
  }

  /** Takes a line without its end. */
  take(text: string): void {
    const line = parseSaveLine(text);
    const table = this.#table;
    switch (line?.kind) {
      case "table":
        this.#table = {
          name: line.table,
          builtIn: new Set(),
          chains: new Map(),
          jumps: [],
          rules: 0,
        };
        this.#tables.push(this.#table);
        return;
      case "unreadable":
        this.#unreadable.push(line.table);
        return;
      case "chain":
        if (line.isBuiltIn) table?.builtIn.add(line.chain);
        else table?.chains.set(line.chain, 0);
        return;
      case "rule":
        if (table !== undefined) countRule(table, line, this.#keepJump);
    }
  }
}

function countRule(
  table: PendingTable,
  { chain: from, rule }: SavedRule,
  keepJump: JumpFilter,
): void {
  table.rules++;
  const rules = table.chains.get(from);
  if (rules !== undefined) table.chains.set(from, rules + 1);
  const to = targetOf(rule);
  if (to !== undefined && keepJump(table.name, { from, to })) table.jumps.push({ from, to, rule });
}
