/**
 * Imitates `iptables-restore --noflush` and `iptables-save` for one IP family. Applies the input
 * for a table completely or not at all. Refuses what the real tool refuses: jumps to missing
 * chains, removal of chains that are used or not empty, long names, a missing COMMIT.
 */
import type { IptablesTable } from "../../../backends/netfilter/iptables/iptables_objects.ts";

/** Chains by name, each with its rules as text. */
type FakeTable = ReadonlyMap<string, readonly string[]>;

const BUILT_IN: Readonly<Record<IptablesTable, readonly string[]>> = {
  filter: ["FORWARD", "INPUT", "OUTPUT"],
  mangle: ["FORWARD", "INPUT", "OUTPUT", "POSTROUTING", "PREROUTING"],
  nat: ["INPUT", "OUTPUT", "POSTROUTING", "PREROUTING"],
};
const EXTENSION_TARGETS = /^(ACCEPT|DROP|RETURN|REJECT|DNAT|MARK|MASQUERADE|NFLOG|TCPMSS)$/;
const MAX_NAME_LENGTH = 28;

type MutableTable = Map<string, string[]>;

/** The tables of one family. */
export class FakeIptables {
  readonly #tables: Record<IptablesTable, MutableTable> = {
    filter: emptyTable("filter"),
    mangle: emptyTable("mangle"),
    nat: emptyTable("nat"),
  };
  readonly #onCommit: (table: IptablesTable) => void;
  /** Tables with a foreign rule that only `nft` can print. */
  readonly unreadable = new Set<IptablesTable>();

  /** `onCommit` is called when a part of the input came into force. */
  constructor(onCommit: (table: IptablesTable) => void = () => {}) {
    this.#onCommit = onCommit;
  }

  /** The chains of a table. */
  table(name: IptablesTable): FakeTable {
    return this.#tables[name];
  }

  /** Every chain of every table with its rules, sorted by name; built-in ones included. */
  dump(): string {
    return Object.entries(this.#tables).flatMap(([table, chains]) =>
      [...chains].sort(([a], [b]) => a < b ? -1 : 1).flatMap(([chain, rules]) => [
        `${table} ${chain}`,
        ...rules.map((rule) => `  ${rule}`),
      ])
    ).join("\n");
  }

  /** The same as `iptables-save` prints it, rules spelled as they were given. */
  save(): string {
    const hidden = [...this.unreadable].map((table) =>
      `# Table \`${table}' is incompatible, use 'nft' tool.`
    );
    const shown = Object.entries(this.#tables).filter(([table]) =>
      !this.unreadable.has(tableName(table))
    );
    const lines = shown.flatMap(([table, chains]) => [
      `*${table}`,
      ...[...chains.keys()].map((chain) =>
        `:${chain} ${isBuiltIn(table, chain) ? "ACCEPT" : "-"} [0:0]`
      ),
      ...[...chains].flatMap(([chain, rules]) => rules.map((rule) => `-A ${chain} ${rule}`)),
      "COMMIT",
    ]);
    return [...hidden, ...lines].map((line) => `${line}\n`).join("");
  }

  /** Takes all rules and chains of a table away; with `keepChains` as `iptables -F` alone does. */
  flush(table: IptablesTable, { keepChains = false } = {}): void {
    const names = keepChains ? [...this.#tables[table].keys()] : BUILT_IN[table];
    this.#tables[table] = new Map(names.map((chain) => [chain, []]));
  }

  /** Takes input line by line. Throws an Error that names the line; earlier tables stay. */
  restore(text: string): void {
    let current: { readonly name: IptablesTable; readonly chains: MutableTable } | undefined;
    for (const [index, line] of text.split("\n").entries()) {
      try {
        if (line === "" || line.startsWith("#")) continue;
        if (line.startsWith("*")) {
          const name = tableName(line.slice(1));
          current = { name, chains: copyOf(this.#tables[name]) };
        } else if (current === undefined) throw new Error("no table");
        else if (line === "COMMIT") {
          checkTable(current.chains);
          this.#tables[current.name] = current.chains;
          this.#onCommit(current.name);
          current = undefined;
        } else applyLine(current.chains, line);
      } catch (error) {
        const reason = error instanceof Error ? error.message : String(error);
        throw new Error(`line ${index + 1} failed: ${reason}: ${line}`, { cause: error });
      }
    }
    if (current !== undefined) throw new Error("COMMIT expected at the end");
  }
}

function applyLine(chains: MutableTable, line: string): void {
  const [verb = "", name = "", ...words] = line.split(" ");
  if (verb.startsWith(":")) {
    if (verb.length - 1 > MAX_NAME_LENGTH) throw new Error("chain name too long");
    chains.set(verb.slice(1), []);
    return;
  }
  const rules = chains.get(name);
  if (rules === undefined) throw new Error(`no chain '${name}'`);
  const rule = words.join(" ");
  switch (verb) {
    case "-C":
      if (!rules.includes(rule)) throw new Error("Bad rule (does a matching rule exist)");
      break;
    case "-A":
      rules.push(rule);
      break;
    case "-I":
      rules.unshift(rule);
      break;
    case "-D": {
      const index = rules.indexOf(rule);
      if (index < 0) throw new Error("Bad rule (does a matching rule exist in that chain?)");
      rules.splice(index, 1);
      break;
    }
    case "-X":
      if (rules.length > 0) throw new Error("chain is not empty");
      chains.delete(name);
      break;
    default:
      throw new Error(`unknown verb '${verb}'`);
  }
}

function checkTable(chains: MutableTable): void {
  for (const [chain, rules] of chains) {
    for (const rule of rules) {
      const target = /(?:^| )-[jg] (\S+)/.exec(rule)?.[1];
      if (target === undefined || EXTENSION_TARGETS.test(target) || chains.has(target)) continue;
      throw new Error(`chain '${chain}' leads to '${target}', which does not exist`);
    }
  }
}

function isBuiltIn(table: string, chain: string): boolean {
  return BUILT_IN[tableName(table)].includes(chain);
}

function tableName(name: string): IptablesTable {
  if (name === "filter" || name === "mangle" || name === "nat") return name;
  throw new Error(`no table '${name}'`);
}

function emptyTable(name: IptablesTable): MutableTable {
  return new Map(BUILT_IN[name].map((chain) => [chain, []]));
}

function copyOf(chains: MutableTable): MutableTable {
  return new Map([...chains].map(([name, rules]) => [name, [...rules]]));
}
