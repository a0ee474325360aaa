/**
 * Brings chains and sets to a plan, and knows what the kernel holds: known is what was written without a
 * failure, or read since.
 *
 * @module
 */
import type { Quarantined } from "../../../lib/controller/data_plane.ts";
import type { IpFamily } from "../../../lib/net/ip_address.ts";
import type { Clock } from "../../../lib/os/clock.ts";
import type { CommandRunner } from "../../../lib/os/command_runner.ts";
import type {
  PodKey,
  PodPlan,
  PolicyKey,
  PolicyPlan,
  PolicyPlanChanges,
} from "../../../lib/policy/policy_plan.ts";
import { messageOf } from "../../../lib/log/message_of.ts";
import { inSteps } from "../../netfilter/in_steps.ts";
import { readSets, restoreSets } from "../../netfilter/ipset/ipset_runner.ts";
import { entryKey, normalOptions, type SavedSet } from "../../netfilter/ipset/ipset_text.ts";
import type { IptablesRunner } from "../../netfilter/iptables/iptables_runner.ts";
import { BatchRefusal } from "../../netfilter/tool_batch.ts";
import type { PolicyDifference, PolicyRepair } from "../policy_data_plane.ts";
import { type LeftOut, PolicyQuarantine, type RefusedParts } from "../policy_quarantine.ts";
import type { PolicyRuleWriter } from "../policy_rule_plane.ts";
import { addCounts, type WriteCounts } from "../write_counts.ts";
import { isBranch, isPolicyChain, listChainName } from "./base_chains.ts";
import {
  isPolicySet,
  listChain,
  memberEntry,
  peersName,
  peersSet,
  podChains,
  podEntries,
  policyChains,
  policySets,
} from "./layout.ts";
import { PolicySteps } from "./policy_steps.ts";
import { findRefusedParts, isRefusal } from "./refused_parts.ts";

interface PolicyWriterDependencies {
  readonly clock: Clock;
  readonly commands: CommandRunner;
  readonly runner: IptablesRunner;
  readonly family: IpFamily;
}

/** The objects of this data plane in the kernel. */
export interface FoundPolicies {
  /** Rules of `FORWARD` and other built-in chains. */
  readonly builtIn: ReadonlyMap<string, readonly string[]>;
  readonly chains: ReadonlyMap<string, readonly string[]>;
  readonly sets: ReadonlyMap<string, SavedSet>;
}

/** The reading of the kernel, and the parts that must not be written. */
interface Reading {
  readonly found: FoundPolicies;
  readonly refused: RefusedParts;
}

/** A write of changes. */
interface PartialWrite {
  readonly changes: PolicyPlanChanges;
  readonly refused: RefusedParts;
}

/** Time limit. ipset needs seconds for a million entries. */
const IPSET_TIMEOUT_MS = 120_000;
/** Writes of one sync that may be refused: each costs a reading. Many refusals take many syncs. */
const MAX_REFUSALS = 20;
const ITEMS_PER_STEP = 256;

/** Writes the policies of one family. */
export class PolicyWriter implements PolicyRuleWriter {
  readonly #dependencies: PolicyWriterDependencies;
  readonly #quarantine: PolicyQuarantine;
  readonly #chains = new Map<string, readonly string[]>();
  readonly #sets = new Map<string, string>();
  readonly #pods = new Map<PodKey, PodPlan>();
  /** The parts left out, by chain. */
  readonly #leftOut = new Map<string, LeftOut>();
  /** Sets that own rules no longer name, but that the kernel refused to destroy. */
  #doomed = new Set<string>();
  #isKnown = false;

  constructor(dependencies: PolicyWriterDependencies) {
    this.#dependencies = dependencies;
    this.#quarantine = new PolicyQuarantine(dependencies);
  }

  get isKnown(): boolean {
    return this.#isKnown;
  }

  get quarantined(): readonly Quarantined<PolicyKey>[] {
    return this.#quarantine.report(this.#leftOut.values());
  }

  forget(): void {
    this.#isKnown = false;
  }

  /** Reads the current rules and sets, with two processes. */
  async read(): Promise<FoundPolicies> {
    const { family, runner } = this.#dependencies;
    const sets = await readSets(this.#dependencies, {
      isWanted: (name) => isPolicySet(name, family),
      timeoutMs: IPSET_TIMEOUT_MS,
    });
    if (sets.state !== "seen") throw new Error(`Cannot read sets of ipset: ${sets.reason}`);
    const { filter: { builtIn, chains } } = await runner.save();
    const own = new Map([...chains].filter(([name]) => isPolicyChain(name)));
    return { builtIn, chains: own, sets: sets.value };
  }

  async write(
    plan: PolicyPlan,
    options: { readonly changes: PolicyPlanChanges; readonly counts: WriteCounts },
  ): Promise<boolean> {
    return await this.#write(plan, options);
  }

  async verify(plan: PolicyPlan): Promise<readonly PolicyDifference[]> {
    const found = await this.compare(plan);
    if (found.length > 0 || !this.isKnown) {
      await this.#write(plan, { changes: undefined, counts: {} });
    }
    return found;
  }

  async repair(plan: PolicyPlan): Promise<PolicyRepair> {
    const operations: WriteCounts = {};
    const found = await this.compare(plan);
    if (found.length > 0) await this.#write(plan, { changes: undefined, counts: operations });
    const left = found.length > 0 ? await this.compare(plan) : [];
    return { found, left, operations };
  }

  /** Returns the differences that two readings have: the kernel may cut a listing off. */
  async compare(plan: PolicyPlan): Promise<readonly PolicyDifference[]> {
    const textOf = ({ object, name, kind }: PolicyDifference) => `${kind} ${object} ${name}`;
    const first = await this.#compare(plan);
    if (first.length === 0) return first;
    const known = new Set(first.map(textOf));
    return (await this.#compare(plan)).filter((each) => known.has(textOf(each)));
  }

  /** Writes the changes of a plan. A refusal of some policies does not delay others. */
  async #write(
    plan: PolicyPlan,
    { changes, counts }: {
      readonly changes: PolicyPlanChanges | undefined;
      readonly counts: WriteCounts;
    },
  ): Promise<boolean> {
    for (let refusals = 1;; refusals++) {
      const partial = this.#isKnown && changes?.full === false ? changes : undefined;
      const found = partial ? undefined : await this.read();
      const now = this.#dependencies.clock.now();
      const refused = this.#quarantine.waitingAt(now);
      const steps = found
        ? await inSteps(this.#dependencies, this.#difference(plan, { found, refused }))
        : this.#changed(plan, { changes: partial!, refused });
      try {
        this.#isKnown = false;
        await this.#carryOut(steps, counts);
        this.#confirm(steps, { plan, partial, found });
        this.#quarantine.settle(refused);
        return partial === undefined;
      } catch (error) {
        // The kernel may differ from the known state and refuse a line for that reason, so it is read.
        const isNew = partial !== undefined && isRefusal(error);
        if (refusals >= MAX_REFUSALS || !(isNew || await this.#leaveOut(plan, error, steps))) {
          throw error;
        }
      }
    }
  }

  async #compare(plan: PolicyPlan): Promise<readonly PolicyDifference[]> {
    const reading = { found: await this.read(), refused: this.#quarantine.held };
    const { differences } = await inSteps(this.#dependencies, this.#difference(plan, reading));
    return differences.filter(({ name, kind }) => kind !== "extra" || !this.#doomed.has(name));
  }

  *#difference(plan: PolicyPlan, { found, refused }: Reading): Generator<void, PolicySteps> {
    const steps = new PolicySteps(plan.family);
    const [chains, sets] = [new Set<string>(), new Set<string>()];
    let count = 0;
    for (const chain of policyChains(plan, refused)) {
      chains.add(chain.name);
      steps.leftOut.set(chain.name, chain.leftOut);
      steps.writeChain(chain, found.chains.get(chain.name));
      if (++count % ITEMS_PER_STEP === 0) yield;
    }
    steps.writeJumps(found.builtIn);
    for (const name of found.chains.keys()) if (!chains.has(name)) steps.removeChain(name);
    for (const set of policySets(plan, refused)) {
      sets.add(set.name);
      const there = found.sets.get(set.name);
      if (there === undefined) steps.createSet(set);
      else if (there.options !== normalOptions(set.options)) steps.replaceSet(set);
      else {
        const wanted = new Set(set.entries);
        for (const entry of wanted) {
          if (!there.entries.has(entry)) steps.addEntry(set.name, entry);
          if (++count % ITEMS_PER_STEP === 0) yield;
        }
        // Adding an entry with another option replaces the existing one.
        const keys = new Set([...wanted].map(entryKey));
        for (const entry of there.entries) {
          if (!keys.has(entryKey(entry))) steps.deleteEntry(set.name, entry);
          if (++count % ITEMS_PER_STEP === 0) yield;
        }
      }
      yield;
    }
    for (const name of found.sets.keys()) if (!sets.has(name)) steps.destroySet(name);
    return steps;
  }

  /**
   * Returns the changes of a plan to the known state. The cost depends on the changes, and on the
   * pods of this node.
   */
  #changed(plan: PolicyPlan, { changes, refused }: PartialWrite): PolicySteps {
    const steps = new PolicySteps(plan.family);
    const isAllAccepted = this.#leftOut.size === 0;
    this.#changePeers(steps, plan, { changes, refused });
    for (const id of isAllAccepted ? changes.lists : [...changes.lists, ...plan.lists.keys()]) {
      const chain = listChainName(id);
      if (plan.lists.has(id)) {
        if (steps.leftOut.has(chain)) continue;
        const wanted = listChain(id, { plan, refused });
        steps.leftOut.set(chain, wanted.leftOut);
        steps.writeChain(wanted, this.#chains.get(chain));
      } else {
        steps.leftOut.set(chain, undefined);
        if (this.#chains.has(chain)) steps.removeChain(chain);
      }
    }
    if (changes.pods.size > 0) this.#changePods(steps, plan, changes);
    for (const name of this.#doomed) if (!steps.sets.has(name)) steps.destroySet(name);
    return steps;
  }

  #changePeers(
    steps: PolicySteps,
    { family, peers }: PolicyPlan,
    { changes: { peers: changed, members }, refused }: PartialWrite,
  ): void {
    const all = this.#leftOut.size > 0 ? peers.keys() : [];
    for (const id of new Set([...changed, ...all])) {
      const [set, name] = [peers.get(id), peersName(id, family)];
      if (set === undefined) {
        if (this.#sets.has(name)) steps.destroySet(name);
      } else if (!refused.has(name)) {
        const wanted = peersSet(id, set, family);
        if (!this.#sets.has(name)) steps.createSet(wanted);
        else if (changed.has(id) || this.#doomed.has(name)) steps.replaceSet(wanted);
      }
    }
    for (const [id, { added, removed }] of members) {
      const name = peersName(id, family);
      if (!this.#sets.has(name) || changed.has(id)) continue;
      for (const member of added) steps.addEntry(name, memberEntry(member));
      for (const member of removed) steps.deleteEntry(name, memberEntry(member));
    }
  }

  /** Compares pods by their entries, because one pod may get the address of another in one change. */
  #changePods(steps: PolicySteps, plan: PolicyPlan, { pods }: PolicyPlanChanges): void {
    const chains = podChains(plan);
    for (const chain of chains) steps.writeChain(chain, this.#chains.get(chain.name));
    const names = new Set(chains.map(({ name }) => name));
    for (const name of this.#chains.keys()) {
      if (isBranch(name) && !names.has(name)) steps.removeChain(name);
    }
    const entriesOf = (source: ReadonlyMap<PodKey, PodPlan>) =>
      new Map(
        [...pods].flatMap((key) => [...podEntries(source.get(key), plan)])
          .map((entry) => [entry.join(" "), entry]),
      );
    const [before, after] = [entriesOf(this.#pods), entriesOf(plan.pods)];
    for (const [key, entry] of after) if (!before.has(key)) steps.addEntry(...entry);
    for (const [key, entry] of before) if (!after.has(key)) steps.deleteEntry(...entry);
  }

  async #carryOut(steps: PolicySteps, counts: WriteCounts): Promise<void> {
    const { ruleLines } = steps;
    if (ruleLines.length > 0) {
      await this.#restoreSets(steps.linesBeforeRules, counts);
      addCounts(counts, { restores: 1, ruleLines: ruleLines.length });
      await this.#dependencies.runner.restore({ lines: ruleLines });
    }
    const rest = [...ruleLines.length > 0 ? [] : steps.linesBeforeRules, ...steps.linesAfterRules];
    this.#doomed = new Set();
    try {
      await this.#restoreSets([...rest, ...steps.destroyLines], counts);
    } catch (error) {
      // The kernel may refuse to destroy a set just after its last rule was removed. The next write retries.
      const done = error instanceof BatchRefusal ? (error.line ?? 0) - 1 - rest.length : -1;
      if (done < 0) throw error;
      const left = [...steps.destroyed].slice(done);
      this.#doomed = new Set([...left.slice(1), ...left.slice(0, 1)]);
    }
  }

  async #restoreSets(lines: readonly string[], counts: WriteCounts): Promise<void> {
    if (lines.length === 0) return;
    addCounts(counts, { restores: 1, setLines: lines.length });
    const { commands } = this.#dependencies;
    await restoreSets(commands, { lines, timeoutMs: IPSET_TIMEOUT_MS });
  }

  #confirm(
    steps: PolicySteps,
    { plan, partial, found }: {
      readonly plan: PolicyPlan;
      readonly partial: PolicyPlanChanges | undefined;
      readonly found: FoundPolicies | undefined;
    },
  ): void {
    if (found) {
      this.#chains.clear();
      this.#sets.clear();
      this.#pods.clear();
      this.#leftOut.clear();
      for (const [name, rules] of found.chains) this.#chains.set(name, rules);
      for (const [name, { options }] of found.sets) this.#sets.set(name, options);
    }
    for (const [name, rules] of steps.chains) this.#chains.set(name, rules);
    for (const name of steps.removedChains) this.#chains.delete(name);
    for (const [name, options] of steps.sets) this.#sets.set(name, options);
    for (const name of steps.destroyed) if (!this.#doomed.has(name)) this.#sets.delete(name);
    for (const key of partial?.pods ?? plan.pods.keys()) {
      const pod = plan.pods.get(key);
      if (pod) this.#pods.set(key, pod);
      else this.#pods.delete(key);
    }
    for (const [chain, leftOut] of steps.leftOut) {
      if (leftOut && leftOut.size > 0) this.#leftOut.set(chain, leftOut);
      else this.#leftOut.delete(chain);
    }
    this.#isKnown = true;
  }

  /** Whether the refused parts belong to policies, which are then in quarantine. */
  async #leaveOut(plan: PolicyPlan, error: unknown, { written }: PolicySteps): Promise<boolean> {
    const { runner } = this.#dependencies;
    const refused = await findRefusedParts({ runner }, { plan, written, error });
    for (const part of refused) this.#quarantine.refuse(part, messageOf(error));
    return refused.length > 0;
  }
}
