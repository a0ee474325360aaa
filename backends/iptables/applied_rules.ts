/**
 * What the kernel is known to hold of ours. Pure but for its own state.
 *
 * Table nat, which is large, is kept as one number for each chain; table filter as text, since the
 * order of a sync needs what is there now beside what is wanted.
 *
 * @module
 */
import type { IptablesTable } from "../netfilter/iptables_objects.ts";
import { normalRule } from "../netfilter/rule_normal_form.ts";
import { chainKey } from "./chain_ref.ts";

/** A chain as it will be when a batch is applied; without rules = it will be gone. */
export interface AppliedChain {
  readonly table: IptablesTable;
  readonly name: string;
  readonly rules?: readonly string[];
}

/** A hash of what was written; or rules, as they were written to filter or read from any table. */
type Content = number | readonly string[];

/** The chains that are in the kernel, as far as is known. */
export class AppliedRules {
  readonly #chains = new Map<string, Content>();

  /** Whether the chain is there, whatever is in it. */
  has(chain: Pick<AppliedChain, "name" | "table">): boolean {
    return this.#chains.has(chainKey(chain));
  }

  /**
   * Whether the chain is known to hold just these rules. Those that were read are compared by what
   * they mean, and count as written when they are the same.
   */
  holds(chain: Required<AppliedChain>): boolean {
    const content = this.#chains.get(chainKey(chain));
    if (content === undefined) return false;
    const { rules } = chain;
    if (typeof content === "number") return content === contentHash(rules);
    const isSame = content.length === rules.length &&
      content.every((rule, index) =>
        rule === rules[index] || normalRule(rule) === normalRule(rules[index]!)
      );
    if (isSame) this.confirm([chain]);
    return isSame;
  }

  /** The rules of a chain of table filter; none, where it is not there. */
  filterRules(name: string): readonly string[] {
    const content = this.#chains.get(chainKey({ table: "filter", name }));
    return typeof content === "object" ? content : [];
  }

  /** A batch was applied. */
  confirm(chains: Iterable<AppliedChain>): void {
    for (const chain of chains) {
      const key = chainKey(chain);
      if (chain.rules === undefined) this.#chains.delete(key);
      else {
        const { rules, table } = chain;
        this.#chains.set(key, table === "filter" ? rules : contentHash(rules));
      }
    }
  }

  /**
   * A table was read: these of its chains are ours, or kube-proxy's, with their rules as the tool
   * printed them. What of filter is not wanted stays in force until nat has been written.
   */
  adopt(table: IptablesTable, chains: ReadonlyMap<string, readonly string[]>): void {
    this.forget(table);
    for (const [name, rules] of chains) {
      this.#chains.set(chainKey({ table, name }), rules);
    }
  }

  /** Nothing is known of a table; it is taken to have no chain of ours. */
  forget(table: IptablesTable): void {
    for (const key of this.#chains.keys()) {
      if (key.startsWith(`${table} `)) this.#chains.delete(key);
    }
  }

  /** The names of the chains of a table, in no order. */
  names(table: IptablesTable): readonly string[] {
    const start = `${table} `;
    return [...this.#chains.keys()].filter((key) => key.startsWith(start))
      .map((key) => key.slice(start.length));
  }
}

/**
 * 53 bits, by two rounds of FNV-1a with different offsets. Not against an adversary: who could
 * choose rules for a collision would gain that his own change is not applied.
 */
export function contentHash(rules: readonly string[]): number {
  let low = 0x811c9dc5;
  let high = 0x9747b28c;
  for (const rule of rules) {
    for (let index = 0; index < rule.length; index++) {
      const code = rule.charCodeAt(index);
      low = Math.imul(low ^ code, 0x01000193);
      high = Math.imul(high ^ code, 0x5bd1e995) ^ (high >>> 15);
    }
    low = Math.imul(low ^ 10, 0x01000193);
    high = Math.imul(high ^ 10, 0x5bd1e995);
  }
  return (high >>> 0 & 0x1fffff) * 2 ** 32 + (low >>> 0);
}
