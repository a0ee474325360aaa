/**
 * The chains that the kernel is known to hold. Pure except for its own state.
 *
 * Table nat, which is large, is kept as one hash for each chain. Table filter is kept as text,
 * since the order of a sync depends on its current rules.
 *
 * @module
 */
import type { IptablesTable } from "../netfilter/iptables/iptables_objects.ts";
import type { AppliedChain } from "../netfilter/iptables/restore_batch.ts";
import { isSameRule } from "../netfilter/iptables/rule_normal_form.ts";
import { chainKey } from "./chain_ref.ts";

/** A hash of the written rules, or rules as they were written to filter or read from any table. */
type Content = number | readonly string[];

/** The chains that are in the kernel, as far as is known. */
export class AppliedRules {
  readonly #chains = new Map<string, Content>();
  /** Chains in the form that the tool printed, with its hash. */
  readonly #asPrinted = new Map<string, number>();
  /** The tool's printed form of a chain that held the written rules. */
  readonly #prints = new Map<string, number>();

  /** Whether the chain exists, whatever its content. */
  has(chain: Pick<AppliedChain, "name" | "table">): boolean {
    return this.#chains.has(chainKey(chain));
  }

  /** Whether the chain is known to hold the last written content. */
  isCertain(chain: Pick<AppliedChain, "name" | "table">): boolean {
    const key = chainKey(chain);
    return this.#chains.has(key) && !this.#asPrinted.has(key);
  }

  /**
   * Whether the chain is known to hold exactly these rules. Rules that were read are compared by
   * meaning, and count as written when they are the same.
   */
  holds(chain: Required<AppliedChain>): boolean {
    const key = chainKey(chain);
    const content = this.#chains.get(key);
    if (content === undefined) return false;
    const { rules } = chain;
    if (typeof content === "number") return content === contentHash(rules);
    const isSame = content.length === rules.length &&
      content.every((rule, index) => isSameRule(rules[index]!, rule));
    const print = this.#asPrinted.get(key);
    if (isSame && print !== undefined) {
      this.confirm([chain]);
      this.#prints.set(key, print);
    }
    return isSame;
  }

  /** The rules of a chain of table filter; empty if the chain does not exist. */
  filterRules(name: string): readonly string[] {
    const content = this.#chains.get(chainKey({ table: "filter", name }));
    return typeof content === "object" ? content : [];
  }

  /** A batch was applied. */
  confirm(chains: Iterable<AppliedChain>): void {
    for (const chain of chains) {
      const key = chainKey(chain);
      this.#asPrinted.delete(key);
      this.#prints.delete(key);
      if (chain.rules === undefined) this.#chains.delete(key);
      else {
        const { rules, table } = chain;
        this.#chains.set(key, table === "filter" ? rules : contentHash(rules));
      }
    }
  }

  /**
   * Adopts a reading of a table: its chains of this mode or of kube-proxy, with their rules as
   * printed. Unwanted rules of filter stay in effect until nat has been written. A chain that is
   * printed as at its last successful check is unchanged.
   */
  adopt(table: IptablesTable, chains: ReadonlyMap<string, readonly string[]>): void {
    for (const name of this.names(table)) if (!chains.has(name)) this.#forget({ table, name });
    for (const [name, rules] of chains) {
      const key = chainKey({ table, name });
      const print = contentHash(rules);
      if (this.#chains.has(key) && this.#prints.get(key) === print) continue;
      this.#chains.set(key, rules);
      this.#asPrinted.set(key, print);
      this.#prints.delete(key);
    }
  }

  /** Forgets a table, which then counts as one without chains of this mode. */
  forget(table: IptablesTable): void {
    for (const name of this.names(table)) this.#forget({ table, name });
  }

  #forget(chain: Pick<AppliedChain, "name" | "table">): void {
    const key = chainKey(chain);
    this.#chains.delete(key);
    this.#asPrinted.delete(key);
    this.#prints.delete(key);
  }

  /** The names of the chains of a table, in no order. */
  names(table: IptablesTable): readonly string[] {
    const start = `${table} `;
    return [...this.#chains.keys()].filter((key) => key.startsWith(start))
      .map((key) => key.slice(start.length));
  }
}

/**
 * Returns 53 bits, by two rounds of FNV-1a with different offsets. A collision is no attack: it
 * would only prevent the change of the user who chose the rules.
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

/** Rules by table. */
export type RulesByTable = Readonly<Record<IptablesTable, number>>;

/** Counts the rules of this mode in each table, chain by chain. */
export class RuleTotals {
  readonly #counts = new Map<string, number>();
  readonly #totals: Record<IptablesTable, number> = { filter: 0, mangle: 0, nat: 0 };

  /** Rules in each table now. */
  get totals(): RulesByTable {
    return { ...this.#totals };
  }

  /** Updates the counts of these chains; a chain without rules was removed. */
  confirm(chains: Iterable<AppliedChain>): void {
    for (const { table, name, rules } of chains) {
      const key = chainKey({ table, name });
      this.#totals[table] += (rules?.length ?? 0) - (this.#counts.get(key) ?? 0);
      if (rules) this.#counts.set(key, rules.length);
      else this.#counts.delete(key);
    }
  }

  /** A table was read again. */
  clear(table: IptablesTable): void {
    for (const key of this.#counts.keys()) {
      if (key.startsWith(`${table} `)) this.#counts.delete(key);
    }
    this.#totals[table] = 0;
  }
}
