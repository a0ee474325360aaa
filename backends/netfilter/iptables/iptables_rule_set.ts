/**
 * The four rule sets that a machine may have at once: iptables-nft and iptables-legacy, each for IPv4
 * and IPv6. A packet passes all of them; no tool shows more than one.
 *
 * @module
 */
import type { IpFamily } from "../../../lib/net/ip_address.ts";
import type { CommandRunner } from "../../../lib/os/command_runner.ts";
import {
  findIptablesPrograms,
  type IptablesVariant,
  readLegacyTables,
} from "./iptables_variant.ts";
import { askTool, type Seen } from "../probe/try_tool.ts";
import { parseSaveLine, type SavedRule, targetOf } from "./iptables_save.ts";

/** One rule set. */
export interface IptablesRuleSet {
  readonly family: IpFamily;
  readonly variant: IptablesVariant;
}

/**
 * The contents of one rule engine, and the program that changes it (`iptables-restore` by whatever
 * name).
 */
export interface RuleSetContents {
  readonly world: IptablesRuleSet;
  readonly dump: IptablesDump;
  readonly restoreProgram: string;
}

/** The options for reading a rule engine. */
interface RuleSetOptions {
  readonly keepJump: JumpFilter;
  readonly signal?: AbortSignal;
}

/** Every rule set; the order in which they are looked at and cleaned. */
export const IPTABLES_RULE_SETS: readonly IptablesRuleSet[] = [
  { family: "IPv4", variant: "nft" },
  { family: "IPv6", variant: "nft" },
  { family: "IPv4", variant: "legacy" },
  { family: "IPv6", variant: "legacy" },
];

/** 10,000 Services of kube-proxy are 10 MB; iptables-nft prints them in 0.7 s. */
const SAVE_TIMEOUT_MS = 60_000;

/** For a person: `iptables-nft` or `ip6tables-legacy`. */
export function nameOfRuleSet({ family, variant }: IptablesRuleSet): string {
  return `${prefixOf(family)}-${variant}`;
}

/**
 * Reads the rules of one variant. `absent`: it is unused, or the machine has no tool for it. No module
 * is loaded: `/proc` names the legacy tables first, because `iptables-legacy` creates those it reads.
 */
export async function readRuleSet(
  { commands }: { readonly commands: CommandRunner },
  world: IptablesRuleSet,
  { keepJump, signal }: RuleSetOptions,
): Promise<Seen<RuleSetContents>> {
  const options = { timeoutMs: SAVE_TIMEOUT_MS, ...(signal && { signal }) };
  let tables = "";
  if (world.variant === "legacy") {
    const seen = await readLegacyTables(commands, { family: world.family, ...options });
    if (seen.state !== "seen") return seen;
    tables = seen.value.join(", ");
    if (tables === "") return { state: "absent", reason: `${nameOfRuleSet(world)} has no tables` };
  }
  const { usable } = await findIptablesPrograms({ commands }, { family: world.family, signal });
  const programs = usable.find(({ variant }) => variant === world.variant);
  if (programs === undefined) {
    const reason = `${nameOfRuleSet(world)} is not installed`;
    if (tables === "") return { state: "absent", reason };
    return { state: "refused", reason: `${reason}, but its tables ${tables} exist` };
  }
  const reader = new IptablesDumpReader(keepJump);
  const onLine = (line: string) => reader.take(line);
  const seen = await askTool(commands, [programs.save], { ...options, onLine });
  if (seen.state !== "seen") return seen;
  const { dump } = reader;
  return { state: "seen", value: { world, dump, restoreProgram: programs.restore } };
}

function prefixOf(family: IpFamily): string {
  return family === "IPv6" ? "ip6tables" : "iptables";
}

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
class IptablesDumpReader {
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
