import type { IptablesTable } from "../netfilter/iptables/iptables_objects.ts";
import type { RestoreBatch } from "../netfilter/iptables/restore_batch.ts";

/** Counts of one sync, or of one repair. */
export class WriteFigures {
  /** Runs of `iptables-save`. */
  reads = 0;
  /** Runs of `iptables-restore`, refused ones too. */
  restores = 0;
  /** Lines of accepted input. */
  lines = 0;
  bytes = 0;
  /** Chains that were created or rewritten. */
  chains = 0;
  removedChains = 0;
  /** Jumps inserted or removed. */
  jumps = 0;
  readonly rules: Record<IptablesTable, number> = { filter: 0, mangle: 0, nat: 0 };

  /** A batch was accepted. */
  add(
    { applied, counts, lines }: Pick<RestoreBatch<string>, "applied" | "counts" | "lines">,
  ): void {
    this.lines += lines.length;
    this.bytes += counts.bytes;
    this.jumps += counts.jumps;
    for (const table of ["filter", "mangle", "nat"] as const) {
      this.rules[table] += counts.rules.get(table) ?? 0;
    }
    for (const { rules } of applied) {
      if (rules) this.chains++;
      else this.removedChains++;
    }
  }

  /** For the report of a sync; zero ones left out. */
  get operations(): Record<string, number> {
    const { reads, restores, lines, bytes, chains, removedChains, jumps } = this;
    const { filter, mangle, nat } = this.rules;
    const rules = filter + mangle + nat;
    const counts = { reads, restores, lines, bytes, chains, removedChains, rules, jumps };
    return Object.fromEntries(Object.entries(counts).filter(([, count]) => count !== 0));
  }
}
