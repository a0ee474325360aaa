import { assertEquals } from "@std/assert";
import fc from "fast-check";
import { DeferredTree } from "./deferred_tree.ts";
import { PrefixTree, TREE_LIMITS, type TreeEntry } from "./prefix_tree.ts";

const LIMITS = { ...TREE_LIMITS, maxWeight: 6, maxEntries: 4, mergeWeight: 2, mergedWeight: 4 };

/** Everything that can be asked of a tree. */
function content(tree: PrefixTree<TreeEntry>): unknown {
  return [...tree.prefixes()].sort().map((prefix) => {
    const { entries = [], children = [] } = tree.node(prefix) ?? {};
    return [prefix, entries, children.map((child) => child.prefix), tree.way(`${prefix}00`)];
  });
}

Deno.test("DeferredTree is the tree that the same calls make at once", () => {
  const path = fc.string({ unit: fc.constantFrom("0", "1", "2", "3"), minLength: 4, maxLength: 4 });
  const call = fc.record({
    kind: fc.constantFrom("set", "set", "set", "set", "delete", "drop", "seed", "look"),
    path,
    rank: fc.constantFrom("a", "b"),
    weight: fc.integer({ min: 1, max: 3 }),
  });
  fc.assert(
    fc.property(
      fc.array(call, { maxLength: 60 }),
      fc.array(path, { maxLength: 5 }),
      (calls, seeds) => {
        const trees = [PrefixTree, DeferredTree].map((Tree) =>
          new Tree<TreeEntry>(() => {}, LIMITS)
        );
        const prefixes = seeds.map((seed, index) => seed.slice(0, 1 + (index % 3)));
        for (const tree of trees) tree.seed(prefixes);
        for (const { kind, ...entry } of calls) {
          for (const tree of trees) {
            if (kind === "set") tree.set(entry);
            else if (kind === "delete") tree.delete(entry);
            else if (kind === "drop") tree.dropEmpty();
            else if (kind === "look") tree.node("");
          }
        }
        assertEquals(content(trees[1]!), content(trees[0]!));
      },
    ),
    { numRuns: 300 },
  );
});
