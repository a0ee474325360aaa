import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import type { Clock } from "../../lib/os/clock.ts";
import { type IptablesTable, ruleText } from "../netfilter/iptables/iptables_objects.ts";
import type { IptablesRunner } from "../netfilter/iptables/iptables_runner.ts";
import type { SavedTable, SavedTables } from "../netfilter/iptables/iptables_save.ts";
import { inSteps } from "../netfilter/in_steps.ts";
import { TimeSlice, urgent } from "../../lib/os/time_slice.ts";
import { baseChains, baseJumps, CANARY } from "./base_chains.ts";
import type { ChainRef } from "./chain_ref.ts";
import { diffRulesInSteps, type StaleChains, staleChains } from "./diff.ts";
import { type JumpRepair, KUBELET_FIREWALL, NO_JUMP_REPAIR, repairJumps } from "./jump_repair.ts";
import type { IptablesLayout } from "./layout.ts";
import type { RestoreBatch } from "../netfilter/iptables/restore_batch.ts";
import { AppliedRules, type RulesByTable, RuleTotals } from "./applied_rules.ts";
import type { WriteFigures } from "./write_figures.ts";
import type { IptablesRenderOptions } from "./render_options.ts";

interface RuleWriterDependencies {
  readonly clock: Clock;
  readonly runner: IptablesRunner;
}

/** Repairs that a read found necessary, besides chains that differ. */
interface Repair extends JumpRepair {
  readonly stale: StaleChains;
}

const TABLES: readonly IptablesTable[] = ["mangle", "filter", "nat"];
const NO_REPAIR: Repair = { ...NO_JUMP_REPAIR, stale: { filter: [], mangle: [], nat: [] } };
/** After this time, a read from before the cluster's objects were known is outdated. */
const READ_IS_FRESH_MS = 2_000;
/** Chains that are looked at between two questions whether to pause. */
const SLICE_SIZE = 32;

/** Writes the rules of one family, and knows the applied ones. One call is in flight at most. */
export class RuleWriter {
  readonly #dependencies: RuleWriterDependencies;
  readonly #applied = new AppliedRules();
  readonly #totals = new RuleTotals();
  /** Chains that foreign rules refer to: they can be emptied, but not deleted. */
  readonly #kept = new Set<string>();
  #repair: Repair = NO_REPAIR;
  #tables: SavedTables | undefined;
  #readAt = 0;
  #isKnown = false;
  /** Whether the outcome of every write since the last read is known. */
  #isTrusted = false;
  #unreadable: readonly IptablesTable[] = [];
  #failures = 0;
  #batch: RestoreBatch<ServicePortKey> | undefined;

  constructor(dependencies: RuleWriterDependencies) {
    this.#dependencies = dependencies;
  }

  /**
   * Whether the kernel is known to hold the desired state; otherwise the next write reads it first.
   * After a read alone it is not: a check for canaries would report them missing.
   */
  get isKnown(): boolean {
    return this.#isKnown;
  }

  /** Restores that failed. */
  get failures(): number {
    return this.#failures;
  }

  /** The number of rules of this mode in the kernel, without jumps. */
  get totals(): RulesByTable {
    return this.#totals.totals;
  }

  /** Tables that could not be printed at the last reading. They are written nevertheless. */
  get unreadable(): readonly IptablesTable[] {
    return this.#unreadable;
  }

  /** The last batch that the tool refused. */
  get batch(): RestoreBatch<ServicePortKey> | undefined {
    return this.#batch;
  }

  /** Another program may have changed it. */
  forget(): void {
    this.#isKnown = false;
    this.#tables = undefined;
  }

  /** Treats a chain as one that cannot be deleted. */
  keep(chain: string): void {
    this.#kept.add(chain);
  }

  /** Reads the tables. A write soon after needs no further read. */
  async read(figures: WriteFigures): Promise<void> {
    const { clock, runner } = this.#dependencies;
    figures.reads++;
    // Otherwise the rules of an earlier read would stay in memory next to the new ones.
    this.#tables = undefined;
    const tables = await runner.save({ mayLack: true });
    this.#tables = tables;
    this.#unreadable = TABLES.filter((table) => tables[table].isUnreadable);
    this.#readAt = clock.now();
  }

  /** Whether a chain existed when the tables were read; unknown after a write. */
  found({ table, name }: Pick<ChainRef, "table" | "name">): boolean {
    return this.#tables?.[table].chains.has(name) === true;
  }

  /**
   * Runs one restore if anything differs. After an IptablesError the state of the kernel is
   * unknown, and the next write reads it.
   */
  async write(layout: IptablesLayout, figures: WriteFigures): Promise<void> {
    const { clock, runner } = this.#dependencies;
    if (!this.#isKnown) {
      const isFresh = clock.now() - this.#readAt < READ_IS_FRESH_MS;
      if (this.#tables === undefined || !isFresh) await this.read(figures);
      const tables = this.#tables!;
      this.#tables = undefined;
      await this.#adopt(tables, layout);
    }
    const batch = await inSteps(
      { clock },
      diffRulesInSteps(layout, this.#applied, { ...this.#repair, kept: this.#kept }),
    );
    this.#batch = batch;
    if (!batch.isEmpty) {
      this.forget();
      this.#isTrusted = false;
      figures.restores++;
      try {
        await runner.restore(batch);
      } catch (error) {
        this.#failures++;
        throw error;
      }
      await this.#confirm(batch);
      this.#isTrusted = true;
      figures.add(batch);
    }
    this.#isKnown = true;
    this.#tables = undefined;
    this.#batch = undefined;
    this.#repair = NO_REPAIR;
    layout.settle();
  }

  async #confirm({ applied }: RestoreBatch<ServicePortKey>): Promise<void> {
    const slice = new TimeSlice(urgent(this.#dependencies.clock));
    for (let start = 0; start < applied.length; start += SLICE_SIZE) {
      const chains = applied.slice(start, start + SLICE_SIZE);
      this.#applied.confirm(chains);
      this.#totals.confirm(chains);
      await slice.pause();
    }
  }

  /** Compares all rules that were read with all desired ones. */
  async #adopt(saved: SavedTables, layout: IptablesLayout): Promise<void> {
    const { runner } = this.#dependencies;
    const tables = await withUnreadable(runner, saved, layout.options);
    const jumps = repairJumps(layout.options, tables);
    for (const table of TABLES) {
      if (this.#isTrusted && tables[table].isUnreadable && await runner.hasRules(table, CANARY)) {
        continue;
      }
      this.#totals.clear(table);
      const ours = [...tables[table].chains].filter(([name]) => name.startsWith("KUBE-"));
      const chains = new Map(ours);
      if (table === "filter") this.#takeKubeletsChain(chains, layout);
      this.#applied.adopt(table, chains);
      this.#totals.confirm([...chains].map(([name, rules]) => ({ table, name, rules })));
    }
    const wanted = await this.#wantedChains(layout);
    layout.touch(wanted.filter((ref) => !this.#applied.isCertain(ref)));
    const stale = staleChains({ chains: () => wanted }, this.#applied);
    this.#repair = { ...jumps, stale };
  }

  /** Leaves foreign rules in the kubelet's chain; the rule of this mode is inserted like a jump. */
  #takeKubeletsChain(
    chains: Map<string, readonly string[]>,
    layout: IptablesLayout,
  ): void {
    if ((chains.get(KUBELET_FIREWALL) ?? []).length === 0) return;
    const ref: ChainRef = { table: "filter", name: KUBELET_FIREWALL, source: { kind: "base" } };
    const content = layout.content(ref);
    if (content) chains.set(KUBELET_FIREWALL, content.rules);
    else chains.delete(KUBELET_FIREWALL);
  }

  async #wantedChains(layout: IptablesLayout): Promise<readonly ChainRef[]> {
    const slice = new TimeSlice(urgent(this.#dependencies.clock));
    const wanted: ChainRef[] = [];
    for (const ref of layout.chains()) {
      wanted.push(ref);
      if (wanted.length % SLICE_SIZE === 0) await slice.pause();
    }
    return wanted;
  }
}

type Asked = Pick<IptablesRunner, "hasRule" | "hasRules">;

/** A placeholder for the kubelet's rules, whose text is not needed. */
const UNSEEN = "-j RETURN";

/**
 * Adds the existing jumps of unreadable tables. Their chains are unknown, so they are rewritten.
 */
async function withUnreadable(
  runner: Asked,
  tables: SavedTables,
  options: IptablesRenderOptions,
): Promise<SavedTables> {
  const asked: Partial<Record<IptablesTable, SavedTable>> = {};
  for (const table of ["filter", "mangle", "nat"] as const) {
    if (tables[table].isUnreadable) asked[table] = await askFor(runner, table, options);
  }
  return { ...tables, ...asked };
}

async function askFor(
  runner: Asked,
  table: IptablesTable,
  options: IptablesRenderOptions,
): Promise<SavedTable> {
  const builtIn = new Map<string, readonly string[]>();
  for (const jump of baseJumps(options)) {
    const rule = ruleText(jump.rule);
    if (jump.table !== table || !await runner.hasRule(table, { chain: jump.from, rule })) continue;
    // Each rule inserted at the top comes before the earlier ones.
    builtIn.set(jump.from, [rule, ...(builtIn.get(jump.from) ?? [])]);
  }
  const chains = new Map<string, readonly string[]>();
  if (table === "filter" && await runner.hasRules(table, KUBELET_FIREWALL)) {
    const present: string[] = [];
    for (const rule of (baseChains(options).filter.get(KUBELET_FIREWALL) ?? []).map(ruleText)) {
      if (await runner.hasRule(table, { chain: KUBELET_FIREWALL, rule })) present.push(rule);
    }
    chains.set(KUBELET_FIREWALL, [UNSEEN, ...present]);
  }
  return { builtIn, chains, isUnreadable: true };
}
