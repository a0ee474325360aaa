/**
 * How the table is watched for changes by other programs.
 *
 * `nft flush ruleset` removes all chains, even if an older copy of the table is restored. The
 * watch looks for the chains often, which costs the same for any number of Services. A small table
 * is also read completely within seconds.
 *
 * @module
 */
import type { NftTable } from "../netfilter/nft/nft_table.ts";
import type { RuleWatch } from "../netfilter/rule_plane.ts";

/** A flush must be repaired within seconds, however long the sync period is. */
const LONGEST_PAUSE_MS = 5_000;

/** The watch of a table. `periodMs`: longest time between two looks, where it is under five seconds. */
export function tableWatch(
  table: Pick<NftTable, "figures" | "missingChains">,
  { periodMs }: { readonly periodMs: number },
): RuleWatch {
  const pauseMs = Math.min(periodMs, LONGEST_PAUSE_MS);
  return {
    texts: {
      lost: "Another program removed or replaced chains of nftables; repairing",
      changed: "Another program removed or changed rules; repairing",
      failed: "Cannot check the table; trying again",
    },
    pauseMs,
    shortestMs: 2 * pauseMs,
    // A second at 10,000 Services.
    readingMs: 0.1,
    async look() {
      const missing = await table.missingChains();
      return missing.length > 0 ? { count: missing.length, chain: missing[0] } : undefined;
    },
    found(changes) {
      const { chains, elements } = table.figures;
      const names = new Set(
        changes.filter(({ kind }) => ["table", "chain", "set", "map"].includes(kind))
          .map(({ name }) => name),
      );
      const [chain] = names;
      const isWhole = changes.some(({ kind }) => kind === "table");
      const count = isWhole ? chains : names.size;
      const fields = { chains: count, elements, ...(chain !== undefined && { chain }) };
      return { counts: { chain: count, rule: elements }, fields };
    },
  };
}
