/**
 * What `iptables-save` printed, boiled down to chains and who refers to them. A node with 10,000
 * Services prints 44,000 rules: they are counted, not kept.
 *
 * @module
 */

/** A rule that sends packets to a chain of somebody else's. */
export interface Jump {
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
  readonly jumps: readonly Jump[];
  /** Rules of all chains. */
  readonly rules: number;
}

/** All tables of one rule set. */
export interface IptablesDump {
  readonly tables: readonly DumpedTable[];
  /** Tables that the tool could not print, such as those with rules that only `nft` understands. */
  readonly unreadable: readonly string[];
}

/** Which jumps are kept. */
export type JumpFilter = (table: string, jump: Pick<Jump, "from" | "to">) => boolean;

interface PendingTable {
  readonly name: string;
  readonly builtIn: Set<string>;
  readonly chains: Map<string, number>;
  readonly jumps: Jump[];
  rules: number;
}

/** Takes a dump line by line. Lines that mean nothing here are passed over. */
export class IptablesDumpReader {
  readonly #keepJump: JumpFilter;
  readonly #tables: PendingTable[] = [];
  readonly #unreadable: string[] = [];
  #table: PendingTable | undefined;

  constructor(keepJump: JumpFilter) {
    this.#keepJump = keepJump;
  }

  /** What has been taken. */
  get dump(): IptablesDump {
    return { tables: this.#tables, unreadable: this.#unreadable };
  }

  /** Takes a line without its end. */
  take(line: string): void {
    if (line.startsWith("*")) {
      this.#table = {
        name: line.slice(1),
        builtIn: new Set(),
        chains: new Map(),
        jumps: [],
        rules: 0,
      };
      this.#tables.push(this.#table);
    } else if (line.startsWith("#")) {
      const incompatible = /^# Table `(\w+)' is incompatible/.exec(line)?.[1];
      if (incompatible !== undefined) this.#unreadable.push(incompatible);
    } else if (this.#table !== undefined) {
      readTableLine(this.#table, line, this.#keepJump);
    }
  }
}

function readTableLine(table: PendingTable, line: string, keepJump: JumpFilter): void {
  if (line.startsWith(":")) {
    const [name = "", policy] = line.slice(1).split(" ", 2);
    if (policy === "-") table.chains.set(name, 0);
    else table.builtIn.add(name);
    return;
  }
  if (!line.startsWith("-A ")) return;
  table.rules++;
  const space = line.indexOf(" ", 3);
  const from = space < 0 ? line.slice(3) : line.slice(3, space);
  const rules = table.chains.get(from);
  if (rules !== undefined) table.chains.set(from, rules + 1);
  const to = targetOf(line);
  if (to === undefined || !keepJump(table.name, { from, to })) return;
  table.jumps.push({ from, to, rule: line.slice(space + 1) });
}

/** What a rule jumps or goes to. A comment may hold any text, `-j` as well. */
function targetOf(rule: string): string | undefined {
  const bare = rule.includes("--comment")
    ? rule.replace(/ --comment ("(?:\\.|[^"\\])*"|\S+)/g, "")
    : rule;
  return / -[jg] (\S+)/.exec(bare)?.[1];
}
