/**
 * Chains of iptables and sets of ipset for the engine: the layout says what is wanted.
 *
 * @module
 */
import type {
  Batch,
  Change,
  KernelObject,
  ObjectName,
  Objects,
} from "../../../lib/engine/reconciler.ts";
import { Refusal } from "../../../lib/engine/reconciler.ts";
import { messageOf } from "../../../lib/log/message_of.ts";
import type { IpAddress, IpFamily } from "../../../lib/net/ip_address.ts";
import type { CommandRunner } from "../../../lib/os/command_runner.ts";
import type {
  PeerSet,
  PeerSetId,
  PodPlan,
  PodPort,
  RuleListId,
} from "../../../lib/policy/policy_plan.ts";
import type { Clock } from "../../../lib/os/clock.ts";
import { readSets, restoreSets } from "../../netfilter/ipset/ipset_runner.ts";
import { entryKey, normalOptions } from "../../netfilter/ipset/ipset_text.ts";
import { compareChain } from "../../netfilter/iptables/compare_chain.ts";
import type { IptablesRunner } from "../../netfilter/iptables/iptables_runner.ts";
import { isSameRule } from "../../netfilter/iptables/rule_normal_form.ts";
import { BatchRefusal } from "../../netfilter/tool_batch.ts";
import type { PolicyDifference } from "../policy_data_plane.ts";
import type { PolicyQuarantine } from "../policy_quarantine.ts";
import { type ListItem, type ObjectsItem, type Part, PolicyTarget } from "../policy_target.ts";
import { addCounts, type WriteCounts } from "../write_counts.ts";
import {
  BASE_JUMPS,
  baseChains,
  isPolicyChain,
  isUnordered,
  type PolicyChain,
} from "./base_chains.ts";
import {
  gateSets,
  isPolicySet,
  listChain,
  memberEntry,
  peerEntries,
  peersSet,
  podChains,
  podEntries,
} from "./layout.ts";
import { differingRules, entryOf, PolicyBatch, rulesOf } from "./policy_batch.ts";
import { findRefusedParts, isRefusal } from "./refused_parts.ts";

interface Dependencies {
  readonly clock: Clock;
  readonly commands: CommandRunner;
  readonly runner: IptablesRunner;
}

/** Time limit. ipset needs seconds for a million entries. */
const IPSET_TIMEOUT_MS = 120_000;

/** The rules and sets of one family. */
export class IptablesPolicyTarget extends PolicyTarget {
  readonly #dependencies: Dependencies;
  readonly #family: IpFamily;
  /** Sets that own rules no longer name, but that the kernel refused to destroy. */
  #doomed: ReadonlySet<string> = new Set();
  /** The rules of `FORWARD` and other built-in chains, as they were read. */
  #builtIn: ReadonlyMap<string, readonly string[]> = new Map();
  #counts: WriteCounts = {};

  constructor(dependencies: Dependencies, family: IpFamily, quarantine: PolicyQuarantine) {
    super(quarantine);
    this.#dependencies = dependencies;
    this.#family = family;
  }

  /** Reads the current rules and sets, with two processes. */
  async read(): Promise<Objects> {
    this.reads++;
    const { runner } = this.#dependencies;
    const sets = await readSets(this.#dependencies, {
      isWanted: (name) => isPolicySet(name, this.#family),
      timeoutMs: IPSET_TIMEOUT_MS,
    });
    if (sets.state !== "seen") throw new Error(`Cannot read sets of ipset: ${sets.reason}`);
    const { filter: { builtIn, chains } } = await runner.save();
    this.#builtIn = builtIn;
    const jumps = BASE_JUMPS.flatMap(({ from, rule }) => {
      const rules = builtIn.get(from) ?? [];
      const places = rules.flatMap((each, index) => isSameRule(rule, each) ? [index + 1] : []);
      return places.length > 0
        ? [[from, `${places}` === "1" ? rule : `rule ${places}`] as const]
        : [];
    });
    const own = [...chains].filter(([name]) => isPolicyChain(name));
    const objects = new Map<string, ReadonlyMap<string, string>>([
      ["jump", new Map(jumps)],
      ["chain", new Map(own.map(([name, rules]) => [name, rules.join("\n")]))],
      ["set", new Map([...sets.value].map(([name, { options }]) => [name, options]))],
    ]);
    for (const { name, text } of this.#wantedSets()) {
      const there = sets.value.get(name);
      // A set with other options is replaced as a whole.
      if (there?.options !== normalOptions(text)) continue;
      objects.set(name, new Map([...there.entries].map((entry) => memberOf(entry))));
    }
    return objects;
  }

  isSame({ kind, name }: ObjectName, found: string, wanted: string): boolean {
    if (kind === "set") return found === normalOptions(wanted);
    if (kind !== "chain") return false;
    const [there, rules] = [rulesOf(found), rulesOf(wanted)];
    if (there.length !== rules.length) return false;
    const lines = isUnordered(name) ? differingRules(rules, there) : undefined;
    return lines
      ? lines.extra.length + lines.lacking.length === 0
      : rules.every((rule, index) => isSameRule(rule, there[index]!));
  }

  /** Sets that the kernel lets go late. */
  isUnused({ kind, name }: ObjectName): boolean {
    return kind === "set" && this.#doomed.has(name);
  }

  begin(found?: Objects): Batch<Part> {
    const leftovers = found ? new Set<string>() : this.#doomed;
    const batch = new PolicyBatch(this.#family, { builtIn: this.#builtIn, leftovers });
    return {
      add: (object, before, after) => batch.add(object, before, after),
      commit: async () => {
        try {
          await this.#write(batch);
        } catch (error) {
          if (!isRefusal(error)) throw error;
          // In a known state, the kernel may refuse a line since it differs, so it is read first.
          const { runner } = this.#dependencies;
          const { plan } = this;
          const { written } = batch;
          const parts = found ? await findRefusedParts({ runner }, { plan, written, error }) : [];
          const reasons = new Map(parts.map((part) => [part, messageOf(error)]));
          throw new Refusal(reasons, error as Error, { isPartial: true });
        }
      },
    };
  }

  takeCounts(): Readonly<Record<string, number>> {
    const counts = this.#counts;
    this.#counts = {};
    return counts;
  }

  differences(changes: readonly Change<Part>[]): readonly PolicyDifference[] {
    const sets = new Set(changes.flatMap(({ kind, name }) => kind === "set" ? name : []));
    // Entries of missing and other sets are not listed one by one.
    return changes.filter(({ kind }) => !sets.has(kind)).flatMap(differencesOf);
  }

  protected base(): ObjectsItem {
    return {
      objects: [
        ...gateSets(this.#family).map(({ name, options }) => setObject(name, options)),
        ...baseChains(this.plan).map(chainObject),
        ...BASE_JUMPS.map(({ from, rule }) => ({ kind: "jump", name: from, text: rule })),
      ],
    };
  }

  protected override pods(): ObjectsItem {
    return { objects: podChains(this.plan).map(chainObject) };
  }

  protected list(id: RuleListId): ListItem {
    const chain = listChain(id, { plan: this.plan, refused: this.refused });
    return { objects: [chainObject(chain)], leftOut: chain.leftOut };
  }

  protected *podObjects(pod: PodPlan): Generator<KernelObject> {
    for (const [kind, name] of podEntries(pod, this.plan)) yield { kind, name, text: "" };
  }

  protected peers(id: PeerSetId, set: PeerSet): KernelObject {
    const { name, options } = peersSet(id, set, this.#family);
    return setObject(name, options);
  }

  protected *members(set: PeerSet): Generator<readonly [key: string, text: string]> {
    for (const entry of peerEntries(set)) yield memberOf(entry);
  }

  protected memberKey(member: IpAddress | PodPort): string {
    return memberEntry(member);
  }

  *#wantedSets(): Generator<KernelObject> {
    for (const { name, options } of gateSets(this.#family)) yield setObject(name, options);
    for (const [id, set] of this.plan.peers) yield this.peers(id, set);
  }

  async #write(batch: PolicyBatch): Promise<void> {
    const ruleLines = batch.ruleLines();
    const { before, after } = batch.setLines();
    if (ruleLines.length > 0) {
      await this.#restoreSets(before);
      addCounts(this.#counts, { restores: 1, ruleLines: ruleLines.length });
      await this.#dependencies.runner.restore({ lines: ruleLines });
    }
    const rest = [...ruleLines.length > 0 ? [] : before, ...after];
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
    addCounts(this.#counts, { restores: 1, setLines: lines.length });
    const { commands } = this.#dependencies;
    await restoreSets(commands, { lines, timeoutMs: IPSET_TIMEOUT_MS });
  }
}

function chainObject({ name, rules }: PolicyChain): KernelObject {
  return { kind: "chain", name, text: rules.join("\n") };
}

function setObject(name: string, options: string): KernelObject {
  return { kind: "set", name, text: options };
}

/** An entry without its option, and that. */
function memberOf(entry: string): readonly [key: string, text: string] {
  const key = entryKey(entry);
  return [key, entry.slice(key.length).trim()];
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
      const [rules, found] = [rulesOf(after), before === undefined ? before : rulesOf(before)];
      const lines = found && isUnordered(name) ? differingRules(rules, found) : undefined;
      if (lines === undefined) return compareChain({ table: "filter", name, rules }, found);
      return [
        ...lines.extra.map((rule) => ({ kind: "extra" as const, found: rule })),
        ...lines.lacking.map((rule) => ({ kind: "missing" as const, wanted: rule })),
      ].map((each) => ({ object: "rule", name: `filter ${name}`, ...each }));
    }
    case "set":
      return [{ object: "ip set", name, kind, ...(after !== undefined && { wanted: after }) }];
    default: {
      const entry = { object: "ip set entry", name: object };
      if (after !== undefined) return [{ ...entry, kind: "missing", wanted: entryOf(name, after) }];
      return [{ ...entry, kind, found: entryOf(name, before) }];
    }
  }
}
