import type { Clock } from "../../../lib/os/clock.ts";
import type { CommandRunner } from "../../../lib/os/command_runner.ts";
import { inSteps } from "../in_steps.ts";
import type { IptablesDump, JumpFilter } from "../iptables/iptables_dump.ts";
import {
  type IptablesRuleSet,
  nameOfRuleSet,
  readRuleSet,
  type RuleSetContents,
} from "../iptables/iptables_rule_set.ts";
import { isKubeProxyChain } from "./known_chains.ts";
import type { OwnState } from "./own_state.ts";
import type { RemovalRun, RemovalStep } from "./removal_run.ts";
import {
  type ChainFilter,
  describeTableRemoval,
  isNothing,
  planTableRemoval,
  renderTableRemoval,
  type TableRemoval,
} from "./render_iptables_removal.ts";

interface IptablesRemovalInput {
  readonly world: IptablesRuleSet;
  readonly own: OwnState;
  readonly run: RemovalRun;
}

/** kubelet and CNI write to the same tables: if a table changed in between, it is read again. */
const ATTEMPTS = 3;

/**
 * nat comes first: then no packet is sent to kube-proxy's endpoints, which need the ACCEPT rules of
 * the filter table.
 */
const TABLE_ORDER = ["nat", "filter", "mangle"];

/** Removes each table's objects in one step: rules of built-in chains first, then chains. */
export async function removeFromIptables(
  edges: { readonly commands: CommandRunner; readonly clock: Clock },
  { world, own, run }: IptablesRemovalInput,
): Promise<void> {
  const isLeftover: ChainFilter = (table, chain) =>
    isKubeProxyChain(table, chain) && !own.chain?.({ world, table, chain });
  await removeChains(edges, {
    world,
    whose: "kube-proxy's",
    keepJump: (table, { from, to }) => isLeftover(table, to) && !isLeftover(table, from),
    choose: () => isLeftover,
    run,
  });
}

interface ChainRemovalInput {
  readonly world: IptablesRuleSet;
  /** The owner for messages, e.g. `kube-proxy's`. */
  readonly whose: string;
  /** Jumps into chains that may go, from chains that don't. */
  readonly keepJump: JumpFilter;
  /** Selects the chains to remove. */
  readonly choose: (dump: IptablesDump) => ChainFilter;
  readonly run: RemovalRun;
}

/** Removes chains of one rule set with the jumps to them, each table in one step. */
export async function removeChains(
  edges: { readonly commands: CommandRunner; readonly clock: Clock },
  { world, whose, keepJump, choose, run }: ChainRemovalInput,
): Promise<void> {
  let failures: string[] = [];
  for (let attempt = 1; attempt <= ATTEMPTS; attempt++) {
    const seen = await readRuleSet(edges, world, { keepJump, ...run.signal });
    if (seen.state === "refused") run.unseen(`rules of ${nameOfRuleSet(world)}`, seen.reason);
    if (seen.state !== "seen") return;
    const isLeftover = choose(seen.value.dump);
    failures = await removeOnce(edges, { contents: seen.value, isLeftover, whose, run });
    if (failures.length === 0) return;
  }
  for (const failure of failures) run.fail(failure);
}

/** Returns the failures. */
async function removeOnce(
  { clock }: { readonly clock: Clock },
  { contents, isLeftover, whose, run }: {
    readonly contents: RuleSetContents;
    readonly isLeftover: ChainFilter;
    readonly whose: string;
    readonly run: RemovalRun;
  },
): Promise<string[]> {
  const { world, dump } = contents;
  const failures: string[] = [];
  const tables = dump.tables.filter(({ name }) => TABLE_ORDER.includes(name))
    .toSorted((a, b) => TABLE_ORDER.indexOf(a.name) - TABLE_ORDER.indexOf(b.name));
  for (const table of tables) {
    const removal = await inSteps({ clock }, planTableRemoval(table, isLeftover));
    for (const kept of removal.kept) run.keep(`${kept} (${nameOfRuleSet(world)})`);
    if (isNothing(removal)) continue;
    const reason = await run.try(stepOf(contents, removal));
    if (reason === undefined) continue;
    failures.push(`${whose} chains in ${table.name} (${nameOfRuleSet(world)}): ${reason}`);
  }
  for (const table of dump.unreadable) {
    run.keep(`table ${table} (${nameOfRuleSet(world)}): it has rules that only nft can show`);
  }
  return failures;
}

function stepOf({ world, restoreProgram }: RuleSetContents, removal: TableRemoval): RemovalStep {
  return {
    // Without -w, iptables-legacy waits for its lock for ever; the nft variant takes the flag too.
    command: [restoreProgram, "-w", "5", "--noflush"],
    input: () => renderTableRemoval(removal),
    removes: describeTableRemoval(removal, nameOfRuleSet(world)),
  };
}
