/**
 * Removes chains of iptables, with the jumps to them.
 *
 * @module
 */
import type { IpFamily } from "../../../lib/net/ip_address.ts";
import type { Clock } from "../../../lib/os/clock.ts";
import { inPieces } from "../../../lib/os/command_input.ts";
import type { CommandRunner } from "../../../lib/os/command_runner.ts";
import { inSteps } from "../in_steps.ts";
import {
  IPTABLES_RULE_SETS,
  type IptablesRuleSet,
  nameOfRuleSet,
  readRuleSet,
} from "../iptables/iptables_rule_set.ts";
import { jumpsOf, type SavedTable, type SavedTables } from "../iptables/iptables_save.ts";
import { type IptablesTable, partLines, type RestorePart } from "../iptables/iptables_objects.ts";
import { countOf, knownChain } from "./owners.ts";
import type { RemovalRun } from "./removal_run.ts";

/** kubelet and CNI write to the same tables: if a table changed in between, it is read again. */
const ATTEMPTS = 3;

/**
 * nat comes first: then no packet is sent to kube-proxy's endpoints, which need the ACCEPT rules of
 * the filter table.
 */
const TABLE_ORDER = ["nat", "filter", "mangle"] as const satisfies IptablesTable[];

/** Selects the chains of a table to remove. */
export type ChainFilter = (table: string, chain: string) => boolean;

/** Removes each table's objects in one step: rules of built-in chains first, then chains. */
export async function removeChains(
  edges: { readonly commands: CommandRunner; readonly clock: Clock },
  run: RemovalRun,
  { family, whose, isLeftover, choose }: {
    /** @default {both} */
    readonly family?: IpFamily;
    /** The owner for messages, e.g. `kube-proxy's`. */
    readonly whose: string;
    /** The chains that may go. */
    readonly isLeftover: (table: string, chain: string, world: IptablesRuleSet) => boolean;
    /** Selects the chains to remove. @default {all that may go} */
    readonly choose?: (tables: SavedTables) => ChainFilter;
  },
): Promise<void> {
  for (const world of IPTABLES_RULE_SETS) {
    if (family !== undefined && world.family !== family) continue;
    const mayGo: ChainFilter = (table, chain) => isLeftover(table, chain, world);
    const place = nameOfRuleSet(world);
    let failures: string[] = [];
    for (let attempt = 1; attempt === 1 || failures.length > 0 && attempt <= ATTEMPTS; attempt++) {
      failures = [];
      const found = run.take(`rules of ${place}`, await readRuleSet(edges, world, run.signal));
      if (found === undefined) break;
      const { tables, restoreProgram } = found;
      const isChosen = choose?.(tables) ?? mayGo;
      for (const name of TABLE_ORDER) {
        const plan = planRemoval(name, tables[name], place, isChosen);
        const { part, removes, kept } = await inSteps(edges, plan);
        for (const each of kept) run.keep(`${each} (${place})`);
        if (removes.length === 0) continue;
        // The line of a chain empties it, so that none refers to another any more when the first is
        // deleted. The table changes in one step, or not at all. 5,000 Services (20,000 chains) took
        // iptables-nft 1.8.9 2.6 s and iptables-legacy 0.7 s.
        const reason = await run.try({
          // Without -w, iptables-legacy waits for its lock for ever; the nft variant takes the flag too.
          command: [restoreProgram, "-w", "5", "--noflush"],
          input: () => inPieces(partLines(part)),
          removes,
        });
        if (reason !== undefined) failures.push(`${whose} chains in ${name} (${place}): ${reason}`);
      }
      for (const [table, { isUnreadable }] of Object.entries(tables)) {
        if (isUnreadable) {
          run.keep(`table ${table} (${place}): it has rules that only nft can show`);
        }
      }
    }
    for (const failure of failures) run.fail(failure);
  }
}

/** CNI's portmap can use the first to mark packets; the second gives the mark its meaning. */
const MASQUERADE_CHAINS = ["KUBE-MARK-MASQ", "KUBE-POSTROUTING"];

/**
 * Plans the removal from one table, in short steps. A chain that a foreign chain refers to cannot be
 * deleted without changing foreign rules: it is emptied. Masquerade chains stay unchanged.
 */
function* planRemoval(
  table: IptablesTable,
  saved: SavedTable,
  place: string,
  isLeftover: ChainFilter,
): Generator<void, { part: RestorePart; removes: string[]; kept: string[] }> {
  const { builtIn, chains: all } = saved;
  const owned = new Set<string>();
  for (const chain of all.keys()) {
    if (isLeftover(table, chain)) owned.add(chain);
    yield;
  }
  const jumps: { readonly from: string; readonly to: string; readonly rule: string }[] = [];
  for (const jump of jumpsOf(saved)) {
    if (owned.has(jump.to) && !owned.has(jump.from)) jumps.push(jump);
    yield;
  }
  /** Chains with references from foreign chains, and those chains. */
  const holders = () =>
    new Map(
      jumps.filter(({ from, to }) => owned.has(to) && !owned.has(from) && !builtIn.has(from))
        .map(({ from, to }) => [to, from]),
    );
  const kept: string[] = [];
  const marks = holders().get("KUBE-MARK-MASQ");
  for (const chain of marks === undefined ? [] : MASQUERADE_CHAINS) {
    if (owned.delete(chain)) kept.push(`chain ${chain} in ${table}: ${marks} marks by it`);
  }
  // A chain that stays may refer to one to be removed, e.g. the KUBE-POSTROUTING of this mode.
  const held = holders();
  const [removed, emptied]: [string[], string[]] = [[], []];
  const kinds = new Map<string, number>();
  for (const chain of owned) {
    yield;
    const holder = held.get(chain);
    if (holder === undefined) {
      removed.push(chain);
      // Our trees have one chain for each range of addresses or ports, named by it.
      const label = knownChain(table, chain)?.label ??
        chain.replace(/^(KUBE-[A-Z]+-)[0-9a-f]*[tus]?[0-9a-f]*-\d+$/, "$1…");
      kinds.set(label, (kinds.get(label) ?? 0) + 1);
      continue;
    }
    kept.push(`chain ${chain} in ${table}, without rules: ${holder} refers to it`);
    if (all.get(chain)!.length > 0) emptied.push(chain);
  }
  const removedJumps = jumps.filter(({ from, to }) => builtIn.has(from) && owned.has(to));
  const at = `in ${table}`;
  return {
    part: {
      ...{ table, removed, removedJumps },
      chains: emptied.map((name) => ({ name, rules: [] })),
    },
    removes: [
      ...removedJumps.map(({ from, to }) => `rule of ${from} ${at} that jumps to ${to} (${place})`),
      ...emptied.map((chain) => `rules of chain ${chain} ${at} (${place})`),
      ...[...kinds].map(([label, count]) => `${countOf(label, count)} ${at} (${place})`),
    ],
    kept,
  };
}
