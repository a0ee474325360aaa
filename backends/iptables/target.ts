/**
 * The rules of iptables for the engine: chains of this mode, and its jumps in chains of other
 * programs. The layout says what is wanted; one `iptables-save` reads, one `iptables-restore` writes.
 *
 * An object of kind `nat`, `filter` or `mangle` is the chain of this name, and its text the rules, one
 * a line. The tool prints them in other words, which are compared by their meaning.
 *
 * @module
 */
import {
  type Batch,
  type Change,
  type KernelObject,
  type ObjectName,
  type Objects,
  type Reading,
  Refusal,
} from "../../lib/engine/reconciler.ts";
import type { Clock } from "../../lib/os/clock.ts";
import type { DataPlaneDifference, SyncReport } from "../../lib/proxy/data_plane.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import { TimeSlice, urgent } from "../../lib/os/time_slice.ts";
import {
  type IptablesTable,
  partLines,
  type PlacedLine,
  ruleLines,
  ruleText,
} from "../netfilter/iptables/iptables_objects.ts";
import type {
  IptablesError,
  IptablesRunner,
  RefusedLine,
} from "../netfilter/iptables/iptables_runner.ts";
import {
  type SavedTable,
  type SavedTables,
  targetOf,
} from "../netfilter/iptables/iptables_save.ts";
import { findRefusedRules, isRefused } from "../netfilter/iptables/refused_rules.ts";
import {
  areSameRules,
  compareChain,
  isSameRule,
  normalRule,
} from "../netfilter/iptables/rule_normal_form.ts";
import { quarantineRefused, RefusedItems } from "../netfilter/refused_items.ts";
import type { RuleTarget } from "../netfilter/rule_backend.ts";
import {
  baseChains,
  CANARY,
  foundJumps,
  isServiceChain,
  JUMP_KIND,
  JUMPS_KIND,
  KUBELET_FIREWALL,
  wantedJumps,
} from "./base_chains.ts";
import { type ChainItem, chainKey, type IptablesLayout, type LaidOutChain } from "./layout.ts";
import type { IptablesRenderOptions } from "./render_options.ts";
import { type ChainChange, ruleBatch } from "./rule_batch.ts";
import { compareLists } from "../../lib/proxy/compare_lists.ts";

/**
 * Counts of one sync, or of one repair: runs of the tools, refused ones too; lines and bytes of accepted
 * input; chains that were written or removed; jumps inserted or removed; rules by table.
 */
function noFigures() {
  const rules: Record<IptablesTable, number> = { filter: 0, mangle: 0, nat: 0 };
  return {
    ...{ reads: 0, restores: 0, lines: 0, bytes: 0, chains: 0, removedChains: 0, jumps: 0, rules },
  };
}

/** The jumps; they are those of the layout for as long as it lasts. */
interface JumpItem {
  readonly jumps: readonly KernelObject[];
}

type Item = ChainItem | JumpItem;

/** The parts of an {@linkcode IptablesTarget}. */
interface TargetDependencies {
  readonly clock: Clock;
  readonly runner: Pick<IptablesRunner, "hasRule" | "hasRules" | "restore" | "save">;
  /** Creates packet counters that another program deleted; resolves to whether they exist now. */
  readonly recreateCounters: () => Promise<boolean>;
}

/** The ServicePorts of rules that may be refused, by table and rule. */
type Suspects = ReadonlyMap<IptablesTable, ReadonlyMap<string, ReadonlySet<ServicePortKey>>>;

/** Changes of a batch. */
interface Draft {
  readonly chains: ChainChange[];
  readonly jumps: PlacedLine[];
  readonly removedJumps: PlacedLine[];
}

const TABLES = ["mangle", "filter", "nat"] as const satisfies readonly IptablesTable[];
/** The reading of the start serves the first comparison if it is no older. */
const READ_IS_FRESH_MS = 2_000;
/** The chain in which rules are tried. */
const TRIAL = "KUBE-VIP-TRIAL";
/** Lines between two looks at the clock. */
const LINES_PER_LOOK = 1024;
/** A placeholder for the kubelet's rules, whose text is not needed. */
const UNSEEN = "-j RETURN";

/** The rules of one family. */
export class IptablesTarget implements RuleTarget<IptablesLayout> {
  /** Where the work is counted. */
  figures = noFigures();
  readonly refused = new RefusedItems();
  /** Rules of this mode in the kernel, without jumps. */
  totals: Readonly<Record<IptablesTable, number>> = { filter: 0, mangle: 0, nat: 0 };
  readonly #dependencies: TargetDependencies;
  #layout: IptablesLayout | undefined;
  /** The reading of the start, for the first comparison. */
  #early: { readonly tables: SavedTables; readonly at: number } | undefined;
  #unreadable: readonly IptablesTable[] = [];
  /** Chains that foreign rules lead to: they can be emptied, but not deleted. */
  readonly #kept = new Set<string>();
  /** Whether what was last confirmed is still the last write. */
  #isTrusted = false;
  /** Whether this sync or repair has created missing counters. */
  #hasRecreatedCounters = false;
  /** Whether the cause of the last refusal was removed, or is seen by the next reading. */
  #isCorrected = false;

  constructor(dependencies: TargetDependencies) {
    this.#dependencies = dependencies;
  }

  /** The wanted state; set before anything is asked. */
  get layout(): IptablesLayout {
    if (this.#layout === undefined) throw new Error("Cannot lay out rules before a first plan");
    return this.#layout;
  }

  set layout(layout: IptablesLayout) {
    this.#layout = layout;
  }

  get operations(): Record<string, number> {
    const { rules: { filter, mangle, nat }, jumps, ...figures } = this.figures;
    const counts = { ...figures, rules: filter + mangle + nat, jumps };
    return Object.fromEntries(Object.entries(counts).filter(([, count]) => count !== 0));
  }

  countAnew(): void {
    this.figures = noFigures();
    this.#hasRecreatedCounters = false;
  }

  get report(): Pick<SyncReport, "rules"> {
    const { figures: { rules }, totals } = this;
    return {
      rules: {
        nat: { total: totals.nat, last: rules.nat },
        filter: { total: totals.filter, last: rules.filter },
      },
    };
  }

  /** Tables that could not be printed at the last reading. They are written nevertheless. */
  get unreadable(): readonly IptablesTable[] {
    return this.#unreadable;
  }

  /** Reads the tables. A comparison soon after needs no further reading. */
  async readEarly(): Promise<SavedTables> {
    const tables = await this.#save();
    this.#early = { tables, at: this.#dependencies.clock.now() };
    return tables;
  }

  *keys(): Generator<string> {
    yield* this.layout.keys();
    yield JUMPS_KIND;
  }

  dirty(): Iterable<string> {
    return this.layout.dirtyKeys;
  }

  settle(): void {
    this.#isTrusted = true;
    this.#hasRecreatedCounters = false;
    this.refused.settle((key) => this.layout.plan(key) !== undefined);
    this.layout.settle();
  }

  arrange(key: string, applied: Item | undefined): Item | undefined {
    if (key === JUMPS_KIND) return { jumps: [...wantedJumps(this.layout.options)] };
    return this.layout.item(key, applied && "ref" in applied ? applied : undefined);
  }

  *objectsOf(item: Item): Generator<KernelObject> {
    if ("jumps" in item) return yield* item.jumps;
    const { table, name } = item.ref;
    yield { kind: table, name, text: item.layout.contentOf(item).rules.join("\n") };
  }

  isSame({ name }: ObjectName, found: string, wanted: string): boolean {
    const [there, rules] = [ruleLines(found), ruleLines(wanted)];
    if (name === KUBELET_FIREWALL && there.length > 0) {
      return missingRules(rules, there).length === 0;
    }
    return areSameRules(rules, there);
  }

  async read(applied: ReadonlyMap<string, Item>): Promise<Objects> {
    const { clock, runner } = this.#dependencies;
    const early = this.#early && clock.now() - this.#early.at < READ_IS_FRESH_MS
      ? this.#early.tables
      : undefined;
    // Otherwise the rules of an earlier reading would stay in memory next to the new ones.
    this.#early = undefined;
    if (early === undefined) this.figures.reads++;
    const tables: Record<IptablesTable, SavedTable> = { ...early ?? await this.#save() };
    const { options } = this.layout;
    const objects = new Map<string, Map<string, string>>();
    const add = ({ kind, name, text }: KernelObject) =>
      void objects.getOrInsertComputed(kind, () => new Map()).set(name, text);
    const lasting = new Set([...this.layout.lasting()].map(chainKey));
    for (const table of TABLES) {
      if (tables[table].isUnreadable) {
        tables[table] = await askFor(runner, table, options);
        // It is known to be whole by its canary.
        if (this.#isTrusted && await runner.hasRules(table, CANARY)) {
          for (const item of applied.values()) {
            if ("ref" in item && item.ref.table === table) this.objectsOf(item).forEach(add);
          }
        }
      }
      for (const [name, rules] of tables[table].chains) {
        const isOwn = isServiceChain(table, name) || lasting.has(chainKey({ table, name }));
        if (!isOwn) this.#keepTargets(table, rules);
        else if (rules.length > 0 || !this.#kept.has(chainKey({ table, name }))) {
          add({ kind: table, name, text: rules.join("\n") });
        }
      }
      for (const rules of tables[table].builtIn.values()) this.#keepTargets(table, rules);
    }
    this.totals = countRules(objects);
    foundJumps(options, tables).forEach(add);
    return objects;
  }

  async readBeside(): Promise<Objects> {
    const target = new IptablesTarget(this.#dependencies);
    target.layout = this.layout;
    return await target.read(new Map());
  }

  groupsOf(services: readonly ServicePlan[]): Iterable<string> {
    return new Set([
      JUMPS_KIND,
      ...services.flatMap((service) => [...this.layout.keysFor(service)]),
    ]);
  }

  /** Chains have rules of several ServicePorts, so owners are found by line, after a refusal. */
  begin(reading: Reading | undefined): Batch<ServicePortKey> {
    const draft: Draft = { chains: [], jumps: [], removedJumps: [] };
    return {
      add: ({ kind, name }, before, after) =>
        addChange(draft, { kind, name }, before, after, this.#kept),
      // In a known state, another program may be the cause, so everything is read first.
      commit: () => this.#write(draft, { isRead: reading !== undefined }),
    };
  }

  leaveOut(reasons: ReadonlyMap<ServicePortKey, string>): boolean {
    const { clock } = this.#dependencies;
    return quarantineRefused(this.layout, reasons, this.refused, clock) || this.#isCorrected;
  }

  async #save(): Promise<SavedTables> {
    const tables = await this.#dependencies.runner.save({ mayLack: true });
    this.#unreadable = TABLES.filter((table) => tables[table].isUnreadable);
    return tables;
  }

  async #write(draft: Draft, { isRead }: { readonly isRead: boolean }): Promise<void> {
    const { clock, runner } = this.#dependencies;
    const { figures } = this;
    const lines: string[] = [];
    const rules = { filter: 0, mangle: 0, nat: 0 };
    let bytes = 0;
    const slice = new TimeSlice(urgent(clock));
    for (const part of ruleBatch(draft.chains, draft.jumps, draft.removedJumps)) {
      for (const line of partLines(part)) {
        bytes += line.length + 1;
        if (line.startsWith("-A ")) rules[part.table]++;
        const turn = lines.push(line) % LINES_PER_LOOK === 0 ? slice.pause() : undefined;
        if (turn) await turn;
      }
    }
    if (lines.length === 0) return;
    this.#isTrusted = false;
    figures.restores++;
    let suspects: Suspects = new Map();
    try {
      const ownerOf = ({ table, text }: RefusedLine) => {
        suspects = this.#suspectsIn(draft.chains);
        return suspects.get(table)?.get(ruleOf(text))?.values().next().value;
      };
      await runner.restore({ lines, ownerOf });
    } catch (error) {
      if (!isRefused(error)) throw error;
      const reasons = isRead ? await this.#reasonsOf(error, suspects) : new Map();
      throw new Refusal(reasons, error, { isPartial: true });
    }
    figures.lines += lines.length;
    figures.bytes += bytes;
    figures.jumps += draft.jumps.length + draft.removedJumps.length;
    for (const table of TABLES) figures.rules[table] += rules[table];
    const totals = { ...this.totals };
    for (const { table, before = [], rules } of draft.chains) {
      if (rules) figures.chains++;
      else figures.removedChains++;
      totals[table] += (rules?.length ?? 0) - before.length;
    }
    this.totals = totals;
  }

  /** Why a batch was refused, by ServicePort; nothing if the cause is another one. */
  async #reasonsOf(
    error: IptablesError,
    suspects: Suspects,
  ): Promise<ReadonlyMap<ServicePortKey, string>> {
    const { text, table } = error.line ?? { text: "", table: "filter" };
    this.#isCorrected = false;
    const { nfacct } = this.layout.options.features;
    if (nfacct && !this.#hasRecreatedCounters && mayLackCounter(error)) {
      this.#hasRecreatedCounters = true;
      this.#isCorrected = await this.#dependencies.recreateCounters();
      if (this.#isCorrected) return new Map();
    }
    // Another program removed the jump, or has added one to the chain; the next reading notices.
    this.#isCorrected = text.startsWith("-X ") || text.startsWith("-D ");
    if (this.#isCorrected) return new Map();
    const reasons = new Map<ServicePortKey, string>();
    const { clock, runner } = this.#dependencies;
    const restore = (lines: readonly string[]) => {
      this.figures.restores++;
      return runner.restore({ lines });
    };
    for (const [table, owners] of suspects) {
      const refused = await findRefusedRules({ clock, restore }, table, TRIAL, owners.keys());
      if (refused === undefined) return new Map();
      for (const [rule, reason] of refused) {
        for (const owner of owners.get(rule)!) reasons.set(owner, reason);
      }
    }
    // A parser may refuse what the kernel takes.
    for (const owner of suspects.get(table)?.get(ruleOf(text)) ?? []) {
      reasons.set(owner, error.message);
    }
    return reasons;
  }

  /** The ServicePorts of new rules of written chains, by table: a rule in force is not to blame. */
  #suspectsIn(chains: readonly ChainChange[]): Suspects {
    const ownersOf = ownersByChain(this.layout, chains);
    const byTable = new Map<IptablesTable, Map<string, Set<ServicePortKey>>>();
    for (const { table, name, before, rules = [] } of chains) {
      const owners = ownersOf.get(chainKey({ table, name }));
      const found = byTable.getOrInsertComputed(table, () => new Map());
      const inForce = new Set(owners && before?.map(normalRule));
      for (const [index, rule] of rules.entries()) {
        if (owners?.[index] === undefined || inForce.has(normalRule(rule))) continue;
        // Without comments, rules of several ServicePorts may be equal.
        found.getOrInsertComputed(rule, () => new Set()).add(owners[index]);
      }
    }
    return byTable;
  }

  /** Notes the chains that rules of other programs lead to. */
  #keepTargets(table: IptablesTable, rules: readonly string[]): void {
    for (const rule of rules) {
      const target = rule.includes(" KUBE-") ? targetOf(rule) : undefined;
      if (target !== undefined && isServiceChain(table, target)) {
        this.#kept.add(`${table} ${target}`);
      }
    }
  }
}

/** The owner of each rule of some chains, by `table chain`. */
function ownersByChain(
  layout: IptablesLayout,
  chains: readonly { readonly table: string; readonly name: string }[],
): ReadonlyMap<string, LaidOutChain["owners"]> {
  const sought = new Set(chains.map(chainKey));
  const found = layout.contents((chain) => sought.has(chainKey(chain)));
  return new Map(found.map((chain) => [chainKey(chain), chain.owners]));
}

/** A line of an input without `-A` and the chain. */
function ruleOf(line: string): string {
  return line.replace(/^-A \S+ /, "");
}

function addChange(
  draft: Draft,
  { kind, name }: ObjectName,
  before: string | undefined,
  after: string | undefined,
  kept: ReadonlySet<string>,
): void {
  if (kind === JUMPS_KIND || kind === JUMP_KIND) {
    const [table = "", from = ""] = name.split(" ", 2);
    const place = (rule: string): PlacedLine => ({ table: table as IptablesTable, from, rule });
    draft.removedJumps.push(...ruleLines(before).map(place));
    draft.jumps.push(...ruleLines(after).map(place).reverse());
    return;
  }
  const table = kind as IptablesTable;
  const present = before === undefined ? undefined : ruleLines(before);
  if (name === KUBELET_FIREWALL && present !== undefined && present.length > 0) {
    // Writing the chain would take the kubelet's rules away.
    const rules = missingRules(ruleLines(after), present);
    draft.jumps.push(...rules.map((rule) => ({ table, from: name, rule })));
  } else if (after !== undefined) {
    draft.chains.push({ table, name, before: present, rules: ruleLines(after) });
  } else if (!kept.has(chainKey({ table, name }))) {
    draft.chains.push({ table, name, before: present });
  } else if (before !== "") draft.chains.push({ table, name, before: present, rules: [] });
}

function countRules(objects: Objects): Record<IptablesTable, number> {
  const totals = { filter: 0, mangle: 0, nat: 0 };
  for (const table of TABLES) {
    for (const [name, text] of objects.get(table) ?? []) {
      const { length } = ruleLines(text);
      // The others are the kubelet's.
      totals[table] += name === KUBELET_FIREWALL ? Math.min(length, 1) : length;
    }
  }
  return totals;
}

/** Whether the refused rule may refer to a counter: iptables-legacy names only the COMMIT. */
function mayLackCounter({ line }: IptablesError): boolean {
  return line === undefined || line.text === "COMMIT" || line.text.includes(" --nfacct-name ");
}

/** The existing jumps of an unreadable table. Its chains are unknown, so they are rewritten. */
async function askFor(
  runner: Pick<IptablesRunner, "hasRule" | "hasRules">,
  table: IptablesTable,
  options: IptablesRenderOptions,
): Promise<SavedTable> {
  const builtIn = new Map<string, readonly string[]>();
  for (const { name, text } of wantedJumps(options)) {
    const [of, chain = ""] = name.split(" ", 2);
    if (of !== table) continue;
    for (const rule of ruleLines(text)) {
      if (!await runner.hasRule(table, { chain, rule })) continue;
      builtIn.set(chain, [...(builtIn.get(chain) ?? []), rule]);
    }
  }
  const chains = new Map<string, readonly string[]>();
  if (table === "filter" && await runner.hasRules(table, KUBELET_FIREWALL)) {
    const present: string[] = [];
    for (const rule of (baseChains(options).filter.get(KUBELET_FIREWALL) ?? []).map(ruleText)) {
      if (await runner.hasRule(table, { chain: KUBELET_FIREWALL, rule })) present.push(rule);
    }
    chains.set(KUBELET_FIREWALL, [UNSEEN, ...present]);
  }
  return { builtIn, chains, rules: 0, isUnreadable: true };
}

type RuleChange = Change<ServicePortKey>;

/** The differences rule by rule, in words. */
export function ruleDifferences(
  changes: readonly RuleChange[],
  layout: IptablesLayout,
): readonly DataPlaneDifference[] {
  const owners = ownersByChain(
    layout,
    changes.map(({ kind, name }) => ({ table: kind, name })),
  );
  const stale = changes.filter(({ kind, after }) => kind === JUMP_KIND && after === undefined)
    .flatMap(({ name, before }) =>
      ruleLines(before).map((rule) => ({ chain: chainOf(name), rule }))
    );
  const differences = changes.flatMap((change): readonly DataPlaneDifference[] => {
    const { kind, name, before, after } = change;
    if (kind === JUMPS_KIND) return jumpDifferences(change, stale);
    if (kind === JUMP_KIND) {
      if (after === undefined) return [];
      return [{ object: JUMP_KIND, name: chainOf(name), kind: "missing", wanted: after }];
    }
    const chain = `${kind} ${name}`;
    if (after === undefined) {
      return [{ object: "chain", name: chain, kind: "extra", found: before || "no rules" }];
    }
    if (name === KUBELET_FIREWALL && ruleLines(before).length > 0) {
      return missingRules(ruleLines(after), ruleLines(before))
        .map((wanted) => ({ object: "rule", name: chain, kind: "missing", wanted }));
    }
    const found = before === undefined ? undefined : ruleLines(before);
    return compareChain(chain, ruleLines(after), found, owners.get(chain));
  });
  for (const { chain, rule } of stale) {
    differences.push({ object: JUMP_KIND, name: chain, kind: "extra", found: rule });
  }
  return differences;
}

/** Returns the rules of a chain of the kubelet's that are not there. Its other rules stay. */
function missingRules(
  wanted: readonly string[],
  found: readonly string[],
): readonly string[] {
  return wanted.filter((rule) => !found.some((printed) => isSameRule(rule, printed)));
}

/** A leftover with the same target but other conditions counts as a jump that was altered. */
function jumpDifferences(
  { name, before, after }: RuleChange,
  stale: { readonly chain: string; readonly rule: string }[],
): readonly DataPlaneDifference[] {
  const [inPlace, found] = [ruleLines(after), ruleLines(before)];
  return compareLists(inPlace.map(normalRule), found.map(normalRule)).map(({ kind, ...place }) => {
    const wanted = place.wanted === undefined ? undefined : inPlace[place.wanted];
    const at = stale.findIndex(({ chain, rule }) =>
      kind === "missing" && chain === name && targetOf(rule) === targetOf(wanted ?? "")
    );
    const [altered] = at < 0 ? [] : stale.splice(at, 1);
    const there = place.found === undefined ? altered?.rule : found[place.found];
    return {
      object: JUMP_KIND,
      name,
      kind: altered === undefined ? kind : "altered",
      ...(wanted !== undefined && { wanted }),
      ...(there !== undefined && { found: there }),
    };
  });
}

/** Without the rule. */
function chainOf(name: string): string {
  return name.split(" ", 2).join(" ");
}
