import type { IptablesTable } from "../netfilter/iptables/iptables_objects.ts";
import type { AppliedChain } from "../netfilter/iptables/restore_batch.ts";
import { chainKey } from "./chain_ref.ts";

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
