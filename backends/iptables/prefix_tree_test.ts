import fc from "fast-check";
import { assert, assertEquals } from "@std/assert";
import { PrefixTree, type TreeEntry } from "./prefix_tree.ts";

function entry(path: string, rank = "", weight = 4): TreeEntry {
  return { path, rank, weight };
}

/** A tree, and the nodes it touched since the last query. */
function testTree(entries: Iterable<TreeEntry> = []) {
  const touched = new Set<string>();
  const tree = new PrefixTree<TreeEntry>((prefix) => touched.add(prefix));
  const changes = () => {
    const prefixes = [...touched].sort();
    touched.clear();
    return prefixes;
  };
  for (const each of entries) tree.set(each);
  tree.track();
  return { tree, changes };
}

Deno.test("PrefixTree gives no node to an entry alone, and one to all of a path", () => {
  const children = (...entries: readonly TreeEntry[]) => testTree(entries).tree.node("")?.children;
  assertEquals(children(entry("1000", "", 99), entry("2000")), []);
  assertEquals(children(...["a", "b", "c", "d"].map((rank) => entry("1000", rank))), ["1000"]);
});

Deno.test("PrefixTree grows no deeper than it may, and touches what a change above brings", () => {
  const digits = Array.from({ length: 14 }, (_, depth) => "0".repeat(depth));
  const paths = digits.flatMap((zeros) => ["1", "2"].map((digit) => `${zeros}${digit}`));
  const { tree, changes } = testTree(paths.map((path) => entry(path.padEnd(16, "0"), "", 7)));
  const depths = () => [...tree.prefixes()].map((prefix) => tree.branch(prefix).length - 1);
  assertEquals(Math.max(...depths()), 9);
  changes();
  const before = new Set(tree.prefixes());
  // The first level goes, so that there is another one at the end.
  for (const digit of ["1", "2"]) tree.delete(entry(digit.padEnd(16, "0")));
  assertEquals(Math.max(...depths()), 9);
  const different = new Set(tree.prefixes()).symmetricDifference(before);
  assertEquals([...different.difference(new Set(changes()))], []);
});

Deno.test("PrefixTree depends on its entries alone, and touches every node that changes", () => {
  const path = fc.array(fc.constantFrom("0", "1", "2", "3"), { minLength: 5, maxLength: 5 })
    .map((digits) => digits.join(""));
  const step = fc.record({
    path,
    rank: fc.constantFrom("a", "b"),
    weight: fc.integer({ min: 0, max: 9 }),
    isAsked: fc.boolean(),
  });
  const content = (tree: PrefixTree<TreeEntry>) =>
    new Map([...tree.prefixes()].map((prefix) => [prefix, JSON.stringify(tree.node(prefix))]));
  fc.assert(
    fc.property(fc.array(step, { minLength: 20, maxLength: 150, size: "max" }), (steps) => {
      const { tree, changes } = testTree();
      const expected = new Map<string, TreeEntry>();
      let known = content(tree);
      for (const { isAsked, ...entry } of steps) {
        const id = `${entry.path} ${entry.rank}`;
        if (entry.weight === 0) expected.delete(id);
        else expected.set(id, entry);
        if (entry.weight === 0) tree.delete(entry);
        else tree.set(entry);
        if (!isAsked) continue;
        const now = content(tree);
        const touched = new Set(changes());
        for (const prefix of new Set([...now.keys(), ...known.keys()])) {
          const isSame = now.get(prefix) === known.get(prefix);
          assert(isSame || touched.has(prefix), `'${prefix}' changed without being touched`);
        }
        known = now;
      }
      assertEquals(content(tree), content(testTree(expected.values()).tree));
      const found = [...tree.prefixes()].flatMap((prefix) => tree.node(prefix)!.entries);
      const byId = (one: TreeEntry, other: TreeEntry) =>
        `${one.path} ${one.rank}` < `${other.path} ${other.rank}` ? -1 : 1;
      assertEquals([...found].sort(byId), [...expected.values()].sort(byId));
      for (const prefix of tree.prefixes()) {
        for (const { path } of tree.node(prefix)!.entries) {
          assertEquals(tree.branch(path).at(-1), prefix);
        }
      }
    }),
    { numRuns: 200 },
  );
});

Deno.test("PrefixTree touches every chain on the way of a packet, at the depth limit too", () => {
  const skewed = fc.constantFrom("0", "0", "0", "0", "0", "0", "0", "0", "1", "2");
  const path = fc.array(skewed, { minLength: 16, maxLength: 16 }).map((digits) => digits.join(""));
  const step = fc.record({
    kind: fc.constantFrom("add", "add", "delete", "delete", "update"),
    path,
    index: fc.nat(),
  });
  const many = { minLength: 20, maxLength: 60, size: "max" } as const;
  fc.assert(
    fc.property(fc.array(path, many), fc.array(step, many), (paths, steps) => {
      const heavy = (path: string) => entry(path, "", 7);
      const expected = new Map(paths.map((path) => [path, heavy(path)]));
      const { tree, changes } = testTree(expected.values());
      // Only what was touched is written, as the layout does.
      const kernel = new Map([...tree.prefixes()].map((prefix) => [prefix, tree.node(prefix)]));
      /** What a packet can get to. */
      const reachable = (prefix = ""): readonly (readonly [string, unknown])[] => {
        const node = kernel.get(prefix);
        assert(node, `a jump leads to '${prefix}', which does not exist`);
        return [[prefix, node], ...node.children.flatMap((child) => reachable(child))];
      };
      for (const { kind, path, index } of steps) {
        const known = [...expected.keys()][index % Math.max(1, expected.size)];
        const chosen = kind === "add" || known === undefined ? path : known;
        // A new object is a new content.
        if (kind === "delete") expected.delete(chosen);
        else expected.set(chosen, heavy(chosen));
        if (kind === "delete") tree.delete(heavy(chosen));
        else tree.set(expected.get(chosen)!);
        for (const prefix of changes()) {
          const node = tree.node(prefix);
          if (node) kernel.set(prefix, node);
          else kernel.delete(prefix);
        }
        const { tree: other } = testTree(expected.values());
        const wanted = [...other.prefixes()].map((prefix) => [prefix, other.node(prefix)] as const);
        assertEquals(reachable(), wanted);
        assertEquals(kernel.size, wanted.length, "chains that no packet gets to were left");
        for (const [prefix, node] of kernel) {
          const entries = other.node(prefix)!.entries;
          assert(node!.entries.every((each, at) => each === entries[at]), `'${prefix}' is old`);
        }
      }
    }),
    { numRuns: 60 },
  );
});
