/**
 * Removes chains of iptables, with the jumps to them.
 *
 * @module
 */
import type { Clock } from "../../../lib/os/clock.ts";
import { inPieces } from "../../../lib/os/command_input.ts";
import type { CommandRunner } from "../../../lib/os/command_runner.ts";
import { inSteps } from "../in_steps.ts";
import type {
  DumpedTable,
  FoundJump,
  IptablesDump,
  JumpFilter,
} from "../iptables/iptables_dump.ts";
import {
  type IptablesRuleSet,
  nameOfRuleSet,
  readRuleSet,
  type RuleSetContents,
} from "../iptables/iptables_rule_set.ts";
import { partLines } from "../iptables/restore_batch.ts";
import { knownChain } from "./owners.ts";
import type { RemovalRun } from "./removal_run.ts";

/** kubelet and CNI write to the same tables: if a table changed in between, it is read again. */
const ATTEMPTS = 3;

/**
 * nat comes first: then no packet is sent to kube-proxy's endpoints, which need the ACCEPT rules of
 * the filter table.
 */
const TABLE_ORDER = ["nat", "filter", "mangle"];

interface ChainRemoval {
  readonly worlds: readonly IptablesRuleSet[];
  /** The owner for messages, e.g. `kube-proxy's`. */
  readonly whose: string;
  /** The chains that may go. */
  readonly isLeftover: (table: string, chain: string, world: IptablesRuleSet) => boolean;
  /** Further jumps that `choose` needs. @default {only those from other chains into these} */
  readonly keepJump?: JumpFilter;
  /** Selects the chains to remove. @default {all that may go} */
  readonly choose?: (dump: IptablesDump) => ChainFilter;
}

/** Removes each table's objects in one step: rules of built-in chains first, then chains. */
export async function removeChains(
  edges: { readonly commands: CommandRunner; readonly clock: Clock },
  run: RemovalRun,
  { worlds, whose, isLeftover, keepJump, choose }: ChainRemoval,
): Promise<void> {
  for (const world of worlds) {
    const mayGo: ChainFilter = (table, chain) => isLeftover(table, chain, world);
    const isKept: JumpFilter = (table, jump) =>
      mayGo(table, jump.to) && !mayGo(table, jump.from) || keepJump?.(table, jump) === true;
    let failures: string[] = [];
    for (let attempt = 1; attempt <= ATTEMPTS; attempt++) {
      const seen = await readRuleSet(edges, world, { keepJump: isKept, ...run.signal });
      if (seen.state === "refused") run.unseen(`rules of ${nameOfRuleSet(world)}`, seen.reason);
      failures = seen.state === "seen"
        ? await removeOnce(edges, run, whose, seen.value, choose?.(seen.value.dump) ?? mayGo)
        : [];
      if (failures.length === 0) break;
    }
    for (const failure of failures) run.fail(failure);
  }
}

/** Returns the failures. */
async function removeOnce(
  { clock }: { readonly clock: Clock },
  run: RemovalRun,
  whose: string,
  { world, dump, restoreProgram }: RuleSetContents,
  isLeftover: ChainFilter,
): Promise<string[]> {
  const failures: string[] = [];
  const place = nameOfRuleSet(world);
  const tables = dump.tables.filter(({ name }) => TABLE_ORDER.includes(name))
    .toSorted((a, b) => TABLE_ORDER.indexOf(a.name) - TABLE_ORDER.indexOf(b.name));
  for (const table of tables) {
    const removal = await inSteps({ clock }, planTableRemoval(table, isLeftover));
    for (const kept of removal.kept) run.keep(`${kept} (${place})`);
    if (removal.jumps.length + removal.chains.length + removal.emptied.length === 0) continue;
    const reason = await run.try({
      // Without -w, iptables-legacy waits for its lock for ever; the nft variant takes the flag too.
      command: [restoreProgram, "-w", "5", "--noflush"],
      input: () => renderTableRemoval(removal),
      removes: describeTableRemoval(removal, place),
    });
    if (reason !== undefined) {
      failures.push(`${whose} chains in ${table.name} (${place}): ${reason}`);
    }
  }
  for (const table of dump.unreadable) {
    run.keep(`table ${table} (${place}): it has rules that only nft can show`);
  }
  return failures;
}

/** The objects of one table to remove, and those that must stay. */
interface TableRemoval {
  readonly table: string;
  /** Rules of built-in chains that jump to removed chains, one entry for each rule. */
  readonly jumps: readonly FoundJump[];
  /** Chains that go. */
  readonly chains: readonly string[];
  /** The same by kind, for a person: `KUBE-SVC-…` and how many. */
  readonly kinds: ReadonlyMap<string, number>;
  /** Chains that lose their rules but stay, since a foreign chain refers to them. */
  readonly emptied: readonly string[];
  /** The chains that stay, each with its reason. */
  readonly kept: readonly string[];
}

/** Selects the chains of a table to remove. */
export type ChainFilter = (table: string, chain: string) => boolean;

/** CNI's portmap can use the first to mark packets; the second gives the mark its meaning. */
const MASQUERADE_CHAINS = ["KUBE-MARK-MASQ", "KUBE-POSTROUTING"];

/**
 * Plans the removal, in short steps. A chain that a foreign chain refers to cannot be deleted
 * without changing foreign rules: it is emptied. Masquerade chains stay unchanged.
 */
function* planTableRemoval(
  table: DumpedTable,
  isLeftover: ChainFilter,
): Generator<void, TableRemoval> {
  const owned = new Set<string>();
  for (const chain of table.chains.keys()) {
    if (isLeftover(table.name, chain)) owned.add(chain);
    yield;
  }
  const kept: string[] = [];
  const marks = holdersOf(table, owned).get("KUBE-MARK-MASQ");
  for (const chain of marks === undefined ? [] : MASQUERADE_CHAINS) {
    if (owned.delete(chain)) kept.push(`chain ${chain} in ${table.name}: ${marks} marks by it`);
  }
  // A chain that stays may refer to one to be removed, e.g. the KUBE-POSTROUTING of this mode.
  const holders = holdersOf(table, owned);
  const [chains, emptied]: [string[], string[]] = [[], []];
  const kinds = new Map<string, number>();
  for (const chain of owned) {
    yield;
    const holder = holders.get(chain);
    if (holder === undefined) {
      chains.push(chain);
      const label = knownChain(table.name, chain)?.label ?? labelOf(chain);
      kinds.set(label, (kinds.get(label) ?? 0) + 1);
      continue;
    }
    kept.push(`chain ${chain} in ${table.name}, without rules: ${holder} refers to it`);
    if (table.chains.get(chain)! > 0) emptied.push(chain);
  }
  const jumps = table.jumps.filter(({ from, to }) => table.builtIn.has(from) && owned.has(to));
  return { table: table.name, jumps, chains, kinds, emptied, kept };
}

/** Our trees have one chain for each range of addresses or ports, named by it. */
function labelOf(chain: string): string {
  return chain.replace(/^(KUBE-[A-Z]+-)[0-9a-f]*[tus]?[0-9a-f]*-\d+$/, "$1…");
}

/** Finds chains of `owned` with references from foreign chains, and those chains. */
function holdersOf(
  { builtIn, jumps }: DumpedTable,
  owned: ReadonlySet<string>,
): Map<string, string> {
  const foreign = jumps.filter(({ from }) => !owned.has(from) && !builtIn.has(from));
  return new Map(foreign.filter(({ to }) => owned.has(to)).map(({ from, to }) => [to, from]));
}

/**
 * The input of `iptables-restore --noflush`. The line of a chain empties it, so that none refers to
 * another any more when the first is deleted. The table changes in one step, or not at all.
 * 5,000 Services (20,000 chains) took iptables-nft 1.8.9 2.6 s and iptables-legacy 0.7 s.
 */
function renderTableRemoval(
  { table, emptied, chains, jumps }: TableRemoval,
): Generator<string> {
  return inPieces(
    partLines({
      table,
      chains: emptied.map((name) => ({ name, rules: [] })),
      removed: chains,
      removedJumps: jumps,
    }),
  );
}

/** Describes a removal. `world` is e.g. `iptables-nft`. */
function describeTableRemoval(removal: TableRemoval, world: string): string[] {
  const { table, jumps, kinds, emptied } = removal;
  return [
    ...jumps.map(({ from, to }) => `rule of ${from} in ${table} that jumps to ${to} (${world})`),
    ...emptied.map((chain) => `rules of chain ${chain} in ${table} (${world})`),
    ...[...kinds].map(([label, count]) =>
      label.endsWith("…")
        ? `${count} chain${count === 1 ? "" : "s"} ${label} in ${table} (${world})`
        : `chain ${label} in ${table} (${world})`
    ),
  ];
}
