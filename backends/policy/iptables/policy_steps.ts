/**
 * What is written to come from what the kernel holds to what is wanted. Pure but for its own state.
 *
 * Sets and entries are added before the rules that name them, and go after them. A pod is judged from
 * the last addition on: its lists and their sets are there by then.
 *
 * @module
 */
import type { IpFamily } from "../../../lib/net/ip_address.ts";
import {
  addLine,
  createLine,
  deleteLine,
  destroyLine,
  replaceLines,
} from "../../netfilter/ipset/ipset_text.ts";
import { type ChainLine, restoreLines } from "../../netfilter/iptables/restore_batch.ts";
import { isSameRule, normalRule } from "../../netfilter/iptables/rule_normal_form.ts";
import type { LeftOut } from "../policy_quarantine.ts";
import { BASE_JUMPS, type PolicyChain } from "./base_chains.ts";
import { isGate, type PolicySet } from "./layout.ts";

/** Steps of one write, collected. */
export class PolicySteps {
  readonly #family: IpFamily;
  readonly #additions: string[] = [];
  readonly #gateAdditions: string[] = [];
  readonly #gateRemovals: string[] = [];
  readonly #removals: string[] = [];
  readonly #inserted: ChainLine[] = [];
  readonly #deleted: ChainLine[] = [];
  /** Chains as they are afterwards; those that are written whole are in {@linkcode written}. */
  readonly chains = new Map<string, readonly string[]>();
  readonly written: PolicyChain[] = [];
  readonly removedChains: string[] = [];
  /** Sets that are created, with their options. */
  readonly sets = new Map<string, string>();
  readonly destroyed = new Set<string>();
  /** What was left out of chains, by chain. */
  readonly leftOut = new Map<string, LeftOut | undefined>();

  constructor(family: IpFamily) {
    this.#family = family;
  }

  /** Makes a chain hold these rules; `found` = as it is now, if it is there. */
  writeChain(chain: PolicyChain, found: readonly string[] | undefined): void {
    const { name, rules } = chain;
    if (found && chain.isUnordered && isSameRule(rules.at(-1)!, found.at(-1) ?? "")) {
      if (this.#writeSome(chain, found)) return;
    }
    const isSame = found?.length === rules.length &&
      rules.every((rule, index) => isSameRule(rule, found[index]!));
    if (isSame) return;
    this.written.push(chain);
    this.chains.set(name, rules);
  }

  /** Writes only the rules that differ. Returns false where that cannot be done. */
  #writeSome({ name, rules }: PolicyChain, found: readonly string[]): boolean {
    const [wanted, there] = [new Set(rules), new Set(found)];
    if (there.size !== found.length) return false;
    const lacking = new Map<string, string>();
    for (const rule of rules) if (!there.has(rule)) lacking.set(normalRule(rule), rule);
    const extra = found.filter((rule) => !wanted.has(rule) && !lacking.delete(normalRule(rule)));
    this.#deleted.push(...extra.map((rule) => ({ from: name, rule })));
    this.#inserted.push(...[...lacking.values()].map((rule) => ({ from: name, rule })));
    if (extra.length + lacking.size > 0) this.chains.set(name, rules);
    return true;
  }

  removeChain(name: string): void {
    this.removedChains.push(name);
  }

  /** Puts the jumps into our chains first, each once. */
  writeJumps(builtIn: ReadonlyMap<string, readonly string[]>): void {
    for (const { from, rule } of BASE_JUMPS) {
      const there = (builtIn.get(from) ?? []).map((each, index) => ({ each, index }))
        .filter(({ each }) => isSameRule(rule, each));
      if (there.length === 1 && there[0]!.index === 0) continue;
      this.#deleted.push(...there.map(({ each }) => ({ from, rule: each })));
      this.#inserted.push({ from, rule });
    }
  }

  createSet({ name, options, entries }: PolicySet): void {
    this.sets.set(name, options);
    this.#additions.push(createLine(name, options));
    for (const entry of entries) this.addEntry(name, entry);
  }

  /** Puts other content in the place of a set's at one moment, whatever it holds. */
  replaceSet(set: PolicySet): void {
    this.sets.set(set.name, set.options);
    for (const line of replaceLines(set.name, set)) this.#additions.push(line);
  }

  addEntry(set: string, entry: string): void {
    const lines = isGate(set, this.#family) ? this.#gateAdditions : this.#additions;
    lines.push(addLine(set, entry));
  }

  deleteEntry(set: string, entry: string): void {
    const lines = isGate(set, this.#family) ? this.#gateRemovals : this.#removals;
    lines.push(deleteLine(set, entry));
  }

  destroySet(name: string): void {
    this.destroyed.add(name);
  }

  /** Whether the kernel holds what is wanted, but for sets that could not be destroyed before. */
  get isEmpty(): boolean {
    return this.setLines.length === 0 && this.ruleLines.length === 0;
  }

  /** Before the rules. */
  get additions(): readonly string[] {
    return this.#additions;
  }

  /** For `iptables-restore`: one commit. */
  get ruleLines(): readonly string[] {
    return restoreLines([{
      table: "filter",
      chains: this.written,
      removedJumps: this.#deleted,
      jumps: this.#inserted,
      removed: this.removedChains,
    }]);
  }

  /** After the rules. */
  get removals(): readonly string[] {
    // A pod of a closed range is no longer known before it is no longer isolated.
    return [...this.#gateAdditions, ...this.#gateRemovals.toReversed(), ...this.#removals];
  }

  get destroyLines(): readonly string[] {
    return [...this.destroyed].map(destroyLine);
  }

  get setLines(): readonly string[] {
    return [...this.#additions, ...this.removals];
  }

  /** What differs, by kind. */
  get counts(): { readonly chain: number; readonly rule: number; readonly set: number } {
    return {
      chain: this.written.length + this.removedChains.length,
      rule: this.#deleted.length + this.#inserted.length,
      set: this.setLines.length,
    };
  }
}
