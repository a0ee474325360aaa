/**
 * Enforces NetworkPolicies by rules of iptables and sets of ipset, for hosts without nft. Both stay when
 * the process ends. The first sync of the next process reads them and writes the difference.
 *
 * @module
 */
import type { CleanupReport, DataPlaneEdges } from "../../../lib/engine/data_plane.ts";
import {
  type Batch,
  type Change,
  type KernelObject,
  type ObjectName,
  type Objects,
  type Reading,
  Refusal,
} from "../../../lib/engine/reconciler.ts";
import { messageOf } from "../../../lib/log/message_of.ts";
import type { IpFamily } from "../../../lib/net/ip_address.ts";
import type { Direction, PolicyPlan } from "../../../lib/policy/policy_plan.ts";
import { RemovalRun } from "../../netfilter/foreign/removal_run.ts";
import { removeChains } from "../../netfilter/foreign/remove_chains.ts";
import { listSets, readSets, restoreSets } from "../../netfilter/ipset/ipset_runner.ts";
import {
  addLine,
  createLine,
  deleteLine,
  destroyLine,
  normalOptions,
  replaceLines,
} from "../../netfilter/ipset/ipset_text.ts";
import {
  type ChainLine,
  restoreLines,
  ruleLines,
  type WrittenChain,
} from "../../netfilter/iptables/iptables_objects.ts";
import { type IptablesError, IptablesRunner } from "../../netfilter/iptables/iptables_runner.ts";
import { chooseIptables } from "../../netfilter/iptables/iptables_variant.ts";
import { findRefusedRules, isRefused } from "../../netfilter/iptables/refused_rules.ts";
import {
  areSameRules,
  compareChain,
  isSameRule,
  normalRule,
} from "../../netfilter/iptables/rule_normal_form.ts";
import { watchCanaries } from "../../netfilter/iptables/watch_canaries.ts";
import type { RefusedItems } from "../../netfilter/refused_items.ts";
import type { RuleWatch } from "../../netfilter/rule_plane.ts";
import { BatchRefusal } from "../../netfilter/tool_batch.ts";
import { PolicyPlane } from "../policy_plane.ts";
import { type Part, type PolicyDifference, PolicyTarget } from "../policy_target.ts";
import {
  BASE_JUMPS,
  DENY_COUNTED,
  isPolicyChain,
  listChainName,
  POD_CHAINS,
} from "./base_chains.ts";
import {
  entryOf,
  gateEntries,
  IPTABLES_LAYOUT,
  isPolicySet,
  memberOf,
  renderPolicies,
} from "./layout.ts";

/** The data plane of iptables. Runs nothing before it is started. */
export class IptablesPolicyPlane extends PolicyPlane<IptablesPolicyTarget> {
  readonly tool = "iptables";
  /** Absent before the tools were looked for. */
  #tools: { readonly summary: string; readonly runner: IptablesRunner } | undefined;

  get summary(): string {
    return this.#tools?.summary ?? "not started";
  }

  override async start(): Promise<void> {
    this.#tools = undefined;
    await super.start();
    this.edges.logger.info("Chose iptables for NetworkPolicy", { summary: this.summary });
  }

  render(plan: PolicyPlan): Iterable<string> {
    return renderPolicies(plan);
  }

  protected async deniedIn(direction: Direction): Promise<number | undefined> {
    return await this.#tools?.runner.packetsOf("filter", DENY_COUNTED[direction]);
  }

  /** A flush removes the jumps, and a jump inserted above them may bypass the policies. */
  protected watch(
    _target: IptablesPolicyTarget,
    common: Pick<RuleWatch, "found" | "texts">,
  ): RuleWatch {
    const { runner } = this.#tools!;
    const look = watchCanaries(this.edges.clock, this.periodMs, async () => {
      for (const { from, rule } of BASE_JUMPS) {
        const [first = ""] = await runner.rulesOf("filter", from) ?? [];
        if (!isSameRule(rule, first)) return { chain: from, first };
      }
      return undefined;
    });
    return Object.assign(look, common);
  }

  protected async createTarget(): Promise<IptablesPolicyTarget> {
    const { runner } = this.#tools ??= await this.#findTools();
    return new IptablesPolicyTarget(this.edges, runner, this.refused);
  }

  async #findTools() {
    const { family, edges: { commands } } = this;
    const { programs, ...choice } = await chooseIptables({ commands }, { family });
    if (programs === undefined) {
      const reason = "problem" in choice ? choice.problem : "";
      throw new Error(`Cannot enforce NetworkPolicy for ${family} by iptables: ${reason}`);
    }
    const sets = await listSets(commands);
    if (sets.state !== "seen") {
      throw new Error(`Cannot enforce NetworkPolicy for ${family} by ipset: ${sets.reason}`);
    }
    const summary = `rules by ${programs.restore} ${programs.version}, sets by ipset`;
    return { summary, runner: new IptablesRunner({ commands }, programs) };
  }

  /** Removes the rules first, because sets in use cannot be removed. */
  protected async remove(options: { readonly dryRun: boolean }): Promise<CleanupReport> {
    const run = new RemovalRun(this.edges, options);
    await removeChains(this.edges, run, {
      family: this.family,
      whose: "kube-relay's",
      isLeftover: (table, chain) => table === "filter" && isPolicyChain(chain),
    });
    await run.removeSets((name) => isPolicySet(name, this.family));
    return run.report();
  }
}

/** The chain in which rules are tested. No rule jumps to it. */
const TRIAL = "KUBE-RELAY-POLICY-TRIAL";
/** Refused sets that one write finds: each costs a process. */
const MAX_REFUSED_SETS = 1_000;
/** Time limit. ipset needs seconds for a million entries. */
const IPSET_TIMEOUT_MS = 120_000;

/** The rules and sets of one family. */
class IptablesPolicyTarget extends PolicyTarget {
  readonly #edges: Pick<DataPlaneEdges, "clock" | "commands">;
  readonly #runner: IptablesRunner;
  /** Sets that own rules no longer name, but that the kernel refused to destroy. */
  #doomed: ReadonlySet<string> = new Set();
  /** The rules of `FORWARD` and other built-in chains, as they were read. */
  #builtIn: ReadonlyMap<string, readonly string[]> = new Map();
  operations: Readonly<Record<string, number>> = {};

  constructor(
    edges: Pick<DataPlaneEdges, "clock" | "commands">,
    runner: IptablesRunner,
    refused: RefusedItems<{ readonly key: Part }>,
  ) {
    super(IPTABLES_LAYOUT, edges.clock, refused);
    this.#edges = edges;
    this.#runner = runner;
  }

  /** Reads the current rules and sets, with two processes. */
  async read(): Promise<Objects> {
    const sets = await readSets(this.#edges, {
      isWanted: (name) => isPolicySet(name, this.plan.family),
      timeoutMs: IPSET_TIMEOUT_MS,
    });
    if (sets.state !== "seen") throw new Error(`Cannot read sets of ipset: ${sets.reason}`);
    const { filter: { builtIn, chains } } = await this.#runner.save();
    this.#builtIn = builtIn;
    const jumps = BASE_JUMPS.flatMap(({ from, rule }) => {
      const rules = builtIn.get(from) ?? [];
      const places = rules.flatMap((each, index) => isSameRule(rule, each) ? [index + 1] : []);
      return places.length > 0
        ? [[from, `${places}` === "1" ? rule : `rule ${places}`] as const]
        : [];
    });
    const own = new Map<string, string>();
    const objects = new Map<string, ReadonlyMap<string, string>>([
      ["jump", new Map(jumps)],
      ["chain", own],
      ["set", new Map([...sets.value].map(([name, { options }]) => [name, options]))],
    ]);
    for (const [name, rules] of [...chains].filter(([name]) => isPolicyChain(name))) {
      const end = POD_CHAINS.get(name);
      const [last, ofPods] = [rules.at(-1) ?? "", rules.slice(0, -1)];
      const byForm = new Map(ofPods.map((rule) => [normalRule(rule), rule]));
      // One with another end, or with a rule twice, is written as a whole.
      const isKept = end !== undefined && isSameRule(end, last) && byForm.size === ofPods.length;
      if (isKept) objects.set(name, byForm);
      own.set(name, isKept ? last : rules.join("\n"));
    }
    for (const { name, text } of this.#wantedSets()) {
      const there = sets.value.get(name);
      // A set with other options is replaced as a whole.
      if (there?.options !== normalOptions(text)) continue;
      objects.set(name, new Map([...there.entries].map((entry) => memberOf(entry))));
    }
    return objects;
  }

  isSame({ kind }: ObjectName, found: string, wanted: string): boolean {
    if (kind === "set") return found === normalOptions(wanted);
    // Rules of pods are named by their normal form.
    if (kind !== "chain") return POD_CHAINS.has(kind);
    return areSameRules(ruleLines(wanted), ruleLines(found));
  }

  /** Sets that the kernel lets go late. */
  isUnused({ kind, name }: ObjectName): boolean {
    return kind === "set" && this.#doomed.has(name);
  }

  begin(reading: Reading | undefined): Batch<Part> {
    const leftovers = reading ? new Set<string>() : this.#doomed;
    const batch = new PolicyBatch(this.plan.family, this.#builtIn, leftovers);
    return {
      add: (object, before, after) => batch.add(object, before, after),
      commit: async () => {
        try {
          await this.#write(batch);
        } catch (error) {
          if (!(error instanceof BatchRefusal) && !isRefused(error)) throw error;
          // In a known state, the kernel may refuse a line since it differs, so it is read first.
          const reasons = reading ? await this.#refusedParts(error, batch) : new Map();
          throw new Refusal(reasons, error, { isPartial: true });
        }
      },
    };
  }

  countAnew(): void {
    this.operations = {};
  }

  differences(changes: readonly Change<Part>[]): readonly PolicyDifference[] {
    const containers = changes.filter(({ kind }) => kind === "set" || kind === "chain");
    const names = new Set(containers.map(({ name }) => name));
    // What is in missing and other sets and chains is not listed one by one.
    return changes.filter(({ kind }) => !names.has(kind)).flatMap(differencesOf);
  }

  *#wantedSets(): Generator<KernelObject> {
    for (const object of IPTABLES_LAYOUT.base(this.plan)) if (object.kind === "set") yield object;
    for (const [id, set] of this.plan.peers) yield IPTABLES_LAYOUT.peers(id, set, this.plan);
  }

  async #write(batch: PolicyBatch): Promise<void> {
    const { before, left, entered, after } = batch.setLines();
    let rest = after;
    if (entered.length > 0 && left.length > 0) {
      // The two ends of a connection may be meant, one of which was isolated and the other one is now:
      // nothing is taken away before all that comes is in force.
      await this.#restoreSets(before);
      await this.#restoreRules(batch.ruleLines("new"));
      await this.#restoreSets([...entered, ...left]);
      await this.#restoreRules(batch.ruleLines("old"));
    } else {
      const lines = batch.ruleLines("all");
      if (lines.length > 0) await this.#restoreSets([...before, ...left]);
      await this.#restoreRules(lines);
      rest = [...lines.length > 0 ? [] : [...before, ...left], ...entered, ...after];
    }
    this.#doomed = new Set();
    try {
      await this.#restoreSets([...rest, ...batch.destroyLines]);
    } catch (error) {
      // The kernel may refuse to destroy a set just after its last rule was removed. The next write retries.
      const done = error instanceof BatchRefusal ? (error.line ?? 0) - 1 - rest.length : -1;
      if (done < 0) throw error;
      const left = batch.destroyed.slice(done);
      this.#doomed = new Set([...left.slice(1), ...left.slice(0, 1)]);
    }
  }

  async #restoreSets(lines: readonly string[]): Promise<void> {
    if (lines.length === 0) return;
    this.#count("setLines", lines.length);
    await restoreSets(this.#edges.commands, { lines, timeoutMs: IPSET_TIMEOUT_MS });
  }

  async #restoreRules(lines: readonly string[]): Promise<void> {
    if (lines.length === 0) return;
    this.#count("ruleLines", lines.length);
    await this.#runner.restore({ lines });
  }

  /** Finds the refused rules of lists, or names of sets. Returns none if another part was refused. */
  async #refusedParts(
    error: BatchRefusal | IptablesError,
    batch: PolicyBatch,
  ): Promise<ReadonlyMap<Part, string>> {
    const { plan } = this;
    if (error instanceof BatchRefusal) return await this.#refusedSets(error, batch);
    const { written } = batch;
    const lists = new Set([...plan.lists.keys()].map(listChainName));
    // The last rule of a list belongs to no policy.
    const suspects = written.filter(({ name }) => lists.has(name))
      .flatMap(({ rules }) => rules.slice(0, -1));
    const { clock } = this.#edges;
    const restore = (lines: readonly string[]) => this.#runner.restore({ lines });
    const refused = await findRefusedRules({ clock, restore }, "filter", TRIAL, suspects);
    return new Map(refused?.keys().map((rule) => [rule, messageOf(error)]));
  }

  /** The tool stops at the first refused line, so the lines of other sets are written after it. */
  async #refusedSets(
    error: BatchRefusal,
    batch: PolicyBatch,
  ): Promise<ReadonlyMap<Part, string>> {
    const refused = new Map<Part, string>();
    const sets = batch.setLines();
    let lines = [...sets.before, ...sets.left];
    for (let refusal = error; refused.size < MAX_REFUSED_SETS;) {
      // The name of a set that is to replace another one is truncated.
      const start = /'(?:add|create|swap) (?:NEW-)?(\S+P-\S+) /.exec(refusal.message)?.[1];
      if (start === undefined) break;
      for (const { name } of this.#wantedSets()) {
        if (name.startsWith(start)) refused.set(name, messageOf(refusal));
      }
      lines = lines.slice(refusal.line).filter((line) =>
        !line.replace(/^\S+ (NEW-)?/, "").startsWith(start)
      );
      try {
        await this.#restoreSets(lines);
        break;
      } catch (error) {
        if (!(error instanceof BatchRefusal)) throw error;
        refusal = error;
      }
    }
    return refused;
  }

  #count(kind: "ruleLines" | "setLines", lines: number): void {
    const { restores = 0, [kind]: before = 0 } = this.operations;
    this.operations = { ...this.operations, restores: restores + 1, [kind]: before + lines };
  }
}

function differencesOf(
  { kind: object, name, before, after }: Change<Part>,
): readonly PolicyDifference[] {
  const kind = after === undefined ? "extra" : before === undefined ? "missing" : "altered";
  switch (object) {
    case "jump": {
      const place = before === undefined ? "missing" : "reordered";
      return [{ object: "rule", name: `filter ${name}`, kind: place, wanted: after! }];
    }
    case "chain": {
      if (after === undefined) return [{ object, name: `filter ${name}`, kind }];
      const found = before === undefined ? before : ruleLines(before);
      return compareChain(`filter ${name}`, ruleLines(after), found);
    }
    case "set":
      return [{ object: "ip set", name, kind, ...(after !== undefined && { wanted: after }) }];
    default: {
      if (POD_CHAINS.has(object)) {
        const texts = { ...(after && { wanted: after }), ...(before && { found: before }) };
        return [{ object: "rule", name: `filter ${object}`, kind, ...texts }];
      }
      const entry = { object: "ip set entry", name: object };
      if (after !== undefined) return [{ ...entry, kind: "missing", wanted: entryOf(name, after) }];
      return [{ ...entry, kind, found: entryOf(name, before) }];
    }
  }
}

type Entry = readonly [set: string, entry: string];

interface EntryChange {
  readonly before: string | undefined;
  readonly after: string | undefined;
}

/** The lines of one write. */
class PolicyBatch {
  readonly #family: IpFamily;
  readonly #builtIn: ReadonlyMap<string, readonly string[]>;
  /** Sets that are there, though they are not known: they are replaced. */
  readonly #leftovers: ReadonlySet<string>;
  /** Sets that are created, with their options. */
  readonly #created = new Map<string, string>();
  readonly #replaced = new Map<string, string>();
  /** Entries by set, and rules by chain of pods; by key. */
  readonly #entries = new Map<string, Map<string, EntryChange>>();
  readonly #jumps: ChainLine[] = [];
  readonly #removedJumps: ChainLine[] = [];
  readonly #removedChains: string[] = [];
  readonly #destroyed = new Set<string>();
  /** Chains that are written as a whole. */
  readonly written: WrittenChain[] = [];

  constructor(
    family: IpFamily,
    builtIn: ReadonlyMap<string, readonly string[]>,
    leftovers: ReadonlySet<string>,
  ) {
    this.#family = family;
    this.#builtIn = builtIn;
    this.#leftovers = leftovers;
  }

  /** Sets that are destroyed. */
  get destroyed(): readonly string[] {
    const kept = [...this.#leftovers].filter((name) => !this.#replaced.has(name));
    return [...new Set([...this.#destroyed, ...kept])];
  }

  add({ kind, name }: ObjectName, before: string | undefined, after: string | undefined): void {
    switch (kind) {
      case "jump":
        for (const { from, rule } of BASE_JUMPS.filter((jump) => jump.from === name)) {
          // The tool deletes the first of equal rules, so all of them are deleted and one is added first.
          for (const each of this.#builtIn.get(from) ?? []) {
            if (isSameRule(rule, each)) this.#removedJumps.push({ from, rule: each });
          }
          this.#jumps.push({ from, rule });
        }
        return;
      case "set":
        if (after === undefined) this.#destroyed.add(name);
        else if (before === undefined && !this.#leftovers.has(name)) this.#created.set(name, after);
        else this.#replaced.set(name, after);
        return;
      case "chain":
        if (after === undefined) this.#removedChains.push(name);
        else this.written.push({ name, rules: ruleLines(after) });
        return;
      default: {
        // A pod may lose what another one gets.
        const changes = this.#entries.getOrInsertComputed(kind, () => new Map());
        const known = changes.get(name);
        changes.set(name, { before: known?.before ?? before, after: known?.after ?? after });
      }
    }
  }

  /**
   * The lines of `ipset restore`: those that come before the rules, of pods that are no longer isolated,
   * of pods that are isolated now, and those that come after the rules.
   */
  setLines(): Readonly<Record<"before" | "left" | "entered" | "after", readonly string[]>> {
    /** Entries of sets that stay. */
    const [added, deleted]: [Entry[], Entry[]] = [[], []];
    for (const [set, changes] of this.#entries) {
      if (this.#replaced.has(set) || this.#destroyed.has(set) || POD_CHAINS.has(set)) continue;
      for (const [key, { before, after }] of changes) {
        // Adding an entry with another option replaces the existing one.
        if (after === undefined) deleted.push([set, key]);
        else if (after !== before) added.push([set, entryOf(key, after)]);
      }
    }
    const entered = gateEntries(added, this.#family);
    const left = gateEntries(deleted, this.#family);
    const replaced = [...this.#replaced].flatMap(([name, options]) => {
      const entries = [...this.#entries.get(name) ?? []].map(([key, { after }]) =>
        entryOf(key, after)
      );
      return replaceLines(name, { options, entries });
    });
    return {
      before: [
        ...[...this.#created].map(([name, options]) => createLine(name, options)),
        ...replaced,
        ...added.filter((entry) => !entered.has(entry)).map((entry) => addLine(...entry)),
      ],
      // A pod of a closed range is no longer known before it is no longer isolated.
      left: [...left].reverse().map((entry) => deleteLine(...entry)),
      entered: [...entered].map((entry) => addLine(...entry)),
      after: deleted.filter((entry) => !left.has(entry)).map((entry) => deleteLine(...entry)),
    };
  }

  /** The input for `iptables-restore`, with one COMMIT: what comes, what goes, or both. */
  ruleLines(which: "new" | "old" | "all"): readonly string[] {
    const [removed, inserted]: [ChainLine[], ChainLine[]] = [[], []];
    for (const from of POD_CHAINS.keys()) {
      for (const { before, after } of this.#entries.get(from)?.values() ?? []) {
        if (before !== undefined && after !== undefined) continue;
        // A chain that is written as a whole has no known rules, and loses none.
        if (before === undefined) inserted.push({ from, rule: after! });
        else removed.push({ from, rule: before });
      }
    }
    const comes = which === "old" ? undefined : {
      chains: this.written,
      jumps: [...this.#jumps, ...inserted],
    };
    const goes = which === "new" ? undefined : { removed: this.#removedChains };
    return restoreLines([{
      table: "filter",
      ...comes,
      ...goes,
      removedJumps: [...comes ? this.#removedJumps : [], ...goes ? removed : []],
    }]);
  }

  get destroyLines(): readonly string[] {
    return this.destroyed.map(destroyLine);
  }
}
