/**
 * Changes of chains and sets, as lines for two tools.
 *
 * Sets and entries are added before the rules that name them, and removed after them. A pod is
 * judged from the last addition on; its lists and their sets exist by then. A pod that is no longer
 * judged leaves before its rules go: while it is judged without a list, everything is denied.
 *
 * @module
 */
import type { ObjectName } from "../../../lib/engine/reconciler.ts";
import type { IpFamily } from "../../../lib/net/ip_address.ts";
import {
  addLine,
  createLine,
  deleteLine,
  destroyLine,
  replaceLines,
} from "../../netfilter/ipset/ipset_text.ts";
import {
  type ChainLine,
  restoreLines,
  type WrittenChain,
} from "../../netfilter/iptables/restore_batch.ts";
import { isSameRule } from "../../netfilter/iptables/rule_normal_form.ts";
import { BASE_JUMPS, POD_CHAINS } from "./base_chains.ts";
import { entryOf, gateEntries, rulesOf } from "./layout.ts";

type Entry = readonly [set: string, entry: string];

interface EntryChange {
  readonly before: string | undefined;
  readonly after: string | undefined;
}

/** The lines of one write. */
export class PolicyBatch {
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
    { builtIn, leftovers }: {
      readonly builtIn: ReadonlyMap<string, readonly string[]>;
      readonly leftovers: ReadonlySet<string>;
    },
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
        this.#writeJump(name);
        return;
      case "set":
        if (after === undefined) this.#destroyed.add(name);
        else if (before === undefined && !this.#leftovers.has(name)) this.#created.set(name, after);
        else this.#replaced.set(name, after);
        return;
      case "chain":
        if (after === undefined) this.#removedChains.push(name);
        else this.written.push({ name, rules: rulesOf(after) });
        return;
      default: {
        // A pod may lose what another one gets.
        const changes = this.#entries.getOrInsertComputed(kind, () => new Map());
        const known = changes.get(name);
        changes.set(name, { before: known?.before ?? before, after: known?.after ?? after });
      }
    }
  }

  /** Puts the jump into our chains first, once. */
  #writeJump(chain: string): void {
    const { from, rule } = BASE_JUMPS.find(({ from }) => from === chain)!;
    // The tool deletes the first of equal rules, so all of them are deleted and one is added again.
    for (const each of this.#builtIn.get(from) ?? []) {
      if (isSameRule(rule, each)) this.#removedJumps.push({ from, rule: each });
    }
    this.#jumps.push({ from, rule });
  }

  /** The entries that are added to sets that stay, or deleted. */
  #changes(): { readonly added: readonly Entry[]; readonly deleted: readonly Entry[] } {
    const [added, deleted]: [Entry[], Entry[]] = [[], []];
    for (const [set, changes] of this.#entries) {
      if (this.#replaced.has(set) || this.#destroyed.has(set) || POD_CHAINS.has(set)) continue;
      for (const [key, { before, after }] of changes) {
        // Adding an entry with another option replaces the existing one.
        if (after === undefined) deleted.push([set, key]);
        else if (after !== before) added.push([set, entryOf(key, after)]);
      }
    }
    return { added, deleted };
  }

  /** The lines of `ipset restore` that come before the rules, and those that come after them. */
  setLines(): { readonly before: readonly string[]; readonly after: readonly string[] } {
    const { added, deleted } = this.#changes();
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
        // A pod of a closed range is no longer known before it is no longer isolated.
        ...[...left].reverse().map((entry) => deleteLine(...entry)),
      ],
      after: [
        ...[...entered].map((entry) => addLine(...entry)),
        ...deleted.filter((entry) => !left.has(entry)).map((entry) => deleteLine(...entry)),
      ],
    };
  }

  /** The input for `iptables-restore`, with one COMMIT. */
  ruleLines(): readonly string[] {
    const [removed, inserted]: [ChainLine[], ChainLine[]] = [[], []];
    for (const from of POD_CHAINS.keys()) {
      for (const { before, after } of this.#entries.get(from)?.values() ?? []) {
        if (before !== undefined && after !== undefined) continue;
        // A chain that is written as a whole has no known rules, and loses none.
        if (before === undefined) inserted.push({ from, rule: after! });
        else removed.push({ from, rule: before });
      }
    }
    return restoreLines([{
      table: "filter",
      chains: this.written,
      removedJumps: [...this.#removedJumps, ...removed],
      jumps: [...this.#jumps, ...inserted],
      removed: this.#removedChains,
    }]);
  }

  get destroyLines(): readonly string[] {
    return this.destroyed.map(destroyLine);
  }
}
