/**
 * Computes the writes that bring the kernel to the wanted state. Pure except for its own state.
 *
 * Sets and entries are added before the rules that name them, and removed after them. The gates, which
 * decide which pods are judged, gain a pod after the rules and lose it before them. So a judged pod always
 * has its rules, wherever a write ends early.
 *
 * @module
 */
import { compareChain } from "../../netfilter/iptables/compare_chain.ts";
import type { PolicyDifference } from "../policy_data_plane.ts";
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

type Entry = readonly [set: string, entry: string];

/** Steps of one write, collected. */
export class PolicySteps {
  readonly #family: IpFamily;
  /** Lines that create or replace sets. */
  readonly #setLines: string[] = [];
  readonly #added: Entry[] = [];
  readonly #deleted: Entry[] = [];
  readonly #inserted: ChainLine[] = [];
  readonly #removed: ChainLine[] = [];
  readonly #differences: PolicyDifference[] = [];
  /** Chains as they are afterwards; those that are written whole are in {@linkcode written}. */
  readonly chains = new Map<string, readonly string[]>();
  readonly written: PolicyChain[] = [];
  readonly removedChains: string[] = [];
  /** Sets that are created, with their options. */
  readonly sets = new Map<string, string>();
  readonly destroyed = new Set<string>();
  /** The parts left out of chains, by chain. */
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
    this.#differences.push(...compareChain({ table: "filter", name, rules }, found));
  }

  /** Writes only the rules that differ. Returns false where that cannot be done. */
  #writeSome({ name, rules }: PolicyChain, found: readonly string[]): boolean {
    const [wanted, there] = [new Set(rules), new Set(found)];
    if (there.size !== found.length) return false;
    const lacking = new Map<string, string>();
    for (const rule of rules) if (!there.has(rule)) lacking.set(normalRule(rule), rule);
    const extra = found.filter((rule) => !wanted.has(rule) && !lacking.delete(normalRule(rule)));
    for (const rule of extra) this.#removeRule({ from: name, rule });
    for (const rule of lacking.values()) this.#insertRule({ from: name, rule });
    if (extra.length + lacking.size > 0) this.chains.set(name, rules);
    return true;
  }

  #insertRule(line: ChainLine, kind: "missing" | "reordered" = "missing"): void {
    this.#inserted.push(line);
    const { from, rule: wanted } = line;
    this.#differences.push({ object: "rule", name: `filter ${from}`, kind, wanted });
  }

  #removeRule(line: ChainLine): void {
    this.#removed.push(line);
    const { from, rule: found } = line;
    this.#differences.push({ object: "rule", name: `filter ${from}`, kind: "extra", found });
  }

  removeChain(name: string): void {
    this.removedChains.push(name);
    this.#differences.push({ object: "chain", name: `filter ${name}`, kind: "extra" });
  }

  /** Puts the jumps into our chains first, each once. */
  writeJumps(builtIn: ReadonlyMap<string, readonly string[]>): void {
    for (const { from, rule } of BASE_JUMPS) {
      const there = (builtIn.get(from) ?? []).map((each, index) => ({ each, index }))
        .filter(({ each }) => isSameRule(rule, each));
      const [first, ...others] = there;
      if (first?.index === 0 && others.length === 0) continue;
      // Of equal rules the tool deletes the first one: all of them go, and one comes again.
      for (const { each } of others) this.#removeRule({ from, rule: each });
      if (first) this.#removed.push({ from, rule: first.each });
      if (first?.index === 0) this.#inserted.push({ from, rule });
      else this.#insertRule({ from, rule }, first ? "reordered" : "missing");
    }
  }

  createSet({ name, options, entries }: PolicySet): void {
    this.sets.set(name, options);
    this.#setLines.push(createLine(name, options));
    this.#differences.push({ object: "ip set", name, kind: "missing", wanted: options });
    for (const entry of entries) this.#added.push([name, entry]);
  }

  /** Puts other content in the place of a set's at one moment, whatever it holds. */
  replaceSet(set: PolicySet): void {
    const { name, options } = set;
    this.sets.set(name, options);
    this.#differences.push({ object: "ip set", name, kind: "altered", wanted: options });
    for (const line of replaceLines(name, set)) this.#setLines.push(line);
  }

  addEntry(set: string, entry: string): void {
    this.#added.push([set, entry]);
    const object = "ip set entry";
    this.#differences.push({ object, name: set, kind: "missing", wanted: entry });
  }

  deleteEntry(set: string, entry: string): void {
    this.#deleted.push([set, entry]);
    this.#differences.push({ object: "ip set entry", name: set, kind: "extra", found: entry });
  }

  destroySet(name: string): void {
    this.destroyed.add(name);
    this.#differences.push({ object: "ip set", name, kind: "extra" });
  }

  /** The differences, object by object. */
  get differences(): readonly PolicyDifference[] {
    return this.#differences;
  }

  /** For `ipset restore` before the rules. */
  get setLinesBefore(): readonly string[] {
    // A pod of a closed range is no longer known before it is no longer isolated.
    const leaving = this.#deleted.filter((entry) => this.#isOfGate(entry)).reverse();
    const added = this.#added.filter((entry) => !this.#isOfGate(entry));
    return [
      ...leaving.map((entry) => deleteLine(...entry)),
      ...this.#setLines,
      ...added.map((entry) => addLine(...entry)),
    ];
  }

  /** For `iptables-restore`: one commit. */
  get ruleLines(): readonly string[] {
    return restoreLines([{
      table: "filter",
      chains: this.written,
      removedJumps: this.#removed,
      jumps: this.#inserted,
      removed: this.removedChains,
    }]);
  }

  /** For `ipset restore` after the rules. */
  get setLinesAfter(): readonly string[] {
    const entering = this.#added.filter((entry) => this.#isOfGate(entry));
    const deleted = this.#deleted.filter((entry) => !this.#isOfGate(entry));
    return [
      ...entering.map((entry) => addLine(...entry)),
      ...deleted.map((entry) => deleteLine(...entry)),
    ];
  }

  #isOfGate([set]: Entry): boolean {
    return isGate(set, this.#family);
  }

  get destroyLines(): readonly string[] {
    return [...this.destroyed].map(destroyLine);
  }
}
