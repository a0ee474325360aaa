/**
 * How many rules of ours are in each table. Pure but for its own state.
 *
 * @module
 */
import type { IptablesTable } from "../netfilter/iptables/iptables_objects.ts";
import type { AppliedChain } from "../netfilter/iptables/restore_batch.ts";
import { chainKey } from "./chain_ref.ts";

/** Rules by table. */
export type RulesByTable = Readonly<Record<IptablesTable, number>>;

/** Counts rules chain by chain: what is known of a chain replaces what was known before. */
export class RuleTotals {
  readonly #counts = new Map<string, number>();
  readonly #totals: Record<IptablesTable, number> = { filter: 0, mangle: 0, nat: 0 };

  /** Rules in each table now. */
  get totals(): RulesByTable {
    return { ...this.#totals };
  }

  /** Takes what chains hold from now on; those without rules are gone. */
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
