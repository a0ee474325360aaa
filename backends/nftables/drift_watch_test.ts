import { assertEquals } from "@std/assert";
import { NftFigures } from "../netfilter/nft/nft_table.ts";
import { tableWatch } from "./drift_watch.ts";

const TABLE = { figures: new NftFigures(), missingChains: () => Promise.resolve([]) };

Deno.test("the watch of nftables looks every five seconds, or as often as the sync period requires", () => {
  assertEquals(tableWatch(TABLE, { periodMs: 30_000 }).pauseMs, 5_000);
  assertEquals(tableWatch(TABLE, { periodMs: 1_000 }).pauseMs, 1_000);
});

Deno.test("the watch of nftables reads a small table often, and one of 10,000 Services every five minutes", () => {
  const { readingMs = 0, shortestMs } = tableWatch(TABLE, { periodMs: 30_000 });
  // One part in 300 of the time.
  assertEquals([shortestMs, readingMs * 10_000 * 300], [10_000, 300_000]);
});

Deno.test("the watch of nftables counts changed rules as those of changed chains, and all chains of a table", () => {
  const figures = Object.assign(new NftFigures(), { chains: 14, elements: 3 });
  const watch = tableWatch({ ...TABLE, figures }, { periodMs: 30_000 });
  const change = (kind: string, name: string) => ({
    ...{ kind, name, before: "drop", after: "", owner: undefined },
  });
  const counts = (...changes: readonly ReturnType<typeof change>[]) => watch.found(changes).counts;
  assertEquals(counts(change("chain", "services"), change("endpoints", "1")), {
    chain: 1,
    rule: 3,
  });
  assertEquals(counts(change("table", "kube-relay")), { chain: 14, rule: 3 });
  assertEquals(counts(), { chain: 0, rule: 3 });
});
