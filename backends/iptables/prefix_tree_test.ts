import fc from "fast-check";
import { assert, assertEquals } from "@std/assert";
import { PrefixTree, TREE_LIMITS, type TreeEntry, type TreeNode } from "./prefix_tree.ts";

const SMALL = { ...TREE_LIMITS, maxWeight: 6, maxEntries: 4, mergeWeight: 2, mergedWeight: 4 };

function entry(path: string, rank = "", weight = 1): TreeEntry {
  return { path, rank, weight };
}

/** A tree, and the nodes it touched since the last query. */
function testTree(limits = SMALL) {
  const touched = new Set<string>();
  const tree = new PrefixTree<TreeEntry>((prefix) => touched.add(prefix), limits);
  const changes = () => {
    const prefixes = [...touched].sort();
    touched.clear();
    return prefixes;
  };
  return { tree, changes };
}

/** A tree as text, e.g. `ab cd 1(11 12)`: entries, and nodes with their content. */
function shape(tree: PrefixTree<TreeEntry>, prefix = ""): string {
  const node = tree.node(prefix);
  return [
    ...(node?.entries ?? []).map(({ path }) => path),
    ...(node?.children ?? []).map((child) => `${child.prefix}(${shape(tree, child.prefix)})`),
  ].join(" ");
}

Deno.test("PrefixTree keeps entries sorted by path and rank", () => {
  const { tree } = testTree();
  for (const path of ["bb", "aa", "cc"]) tree.set(entry(path));
  tree.set(entry("bb", "0"));
  assertEquals(shape(tree), "aa bb bb cc");
  assertEquals(tree.node("")?.entries[1]?.rank, "");
  tree.set(entry("bb", "0", 2));
  assertEquals(tree.node("")?.entries.map(({ weight }) => weight), [1, 1, 2, 1]);
  tree.delete(entry("bb", "0"));
  tree.delete(entry("zz"));
  assertEquals(shape(tree), "aa bb cc");
});

Deno.test("PrefixTree moves the largest group out, and skips levels that distinguish nothing", () => {
  const { tree, changes } = testTree();
  for (const path of ["1001", "1002", "2000", "3000"]) tree.set(entry(path));
  changes();
  tree.set(entry("1003"));
  assertEquals(shape(tree), "2000 3000 100(1001 1002 1003)");
  assertEquals(changes(), ["", "100"]);
  tree.set(entry("1004"));
  assertEquals(changes(), ["100"]);
  tree.set(entry("1100"));
  assertEquals(changes(), [""]);
  assertEquals(shape(tree), "1100 2000 3000 100(1001 1002 1003 1004)");
});

Deno.test("PrefixTree inserts a node if entries next to a child need one", () => {
  const { tree } = testTree();
  for (const path of ["1001", "1002", "1003", "1004", "2000", "1101", "1102", "3000"]) {
    tree.set(entry(path));
  }
  tree.set(entry("1200"));
  assertEquals(shape(tree), "2000 3000 1(1101 1102 1200 100(1001 1002 1003 1004))");
});

Deno.test("PrefixTree merges small nodes, and does not flap", () => {
  const { tree, changes } = testTree();
  for (const path of ["1001", "1002", "1003", "1004", "2000"]) tree.set(entry(path));
  const before = shape(tree);
  assertEquals(before, "2000 100(1001 1002 1003 1004)");
  tree.delete(entry("1004"));
  assertEquals(shape(tree), "2000 100(1001 1002 1003)");
  for (const path of ["1003", "1002"]) tree.delete(entry(path));
  assertEquals(shape(tree), "1001 2000");
  changes();
  for (let round = 0; round < 3; round++) {
    tree.set(entry("1002"));
    tree.delete(entry("1002"));
  }
  assertEquals(changes(), [""]);
});

Deno.test("PrefixTree merges no node into one that its other children fill", () => {
  const { tree, changes } = testTree();
  for (const digit of "0123456789") {
    tree.set(entry(`1${digit}00`));
    tree.set(entry(`1${digit}01`));
  }
  tree.set(entry("1000", "", 2));
  const before = shape(tree);
  assertEquals(tree.node("1")?.entries, []);
  changes();
  tree.set(entry("1000", "", 1));
  assertEquals(shape(tree), before);
  assertEquals(changes(), ["100"]);
});

Deno.test("PrefixTree drops a level that is left with one child", () => {
  const { tree } = testTree();
  const paths = ["1101", "1102", "1103", "1104", "1201", "1202", "1203", "1204", "2000", "1300"];
  for (const path of paths) tree.set(entry(path));
  for (const path of ["1301", "1302", "1303"]) tree.set(entry(path));
  for (const path of ["1300", "1301", "1302", "1303"]) tree.delete(entry(path));
  for (const path of ["1201", "1202", "1203", "1204"]) tree.delete(entry(path));
  assertEquals(shape(tree), "2000 110(1101 1102 1103 1104)");
});

Deno.test("PrefixTree grows no deeper than it may", () => {
  const { tree } = testTree({ ...SMALL, maxDepth: 1 });
  for (let value = 0; value < 64; value++) tree.set(entry(value.toString(4).padStart(3, "0")));
  for (const child of tree.node("")?.children ?? []) assertEquals(child.children.length, 0);
});

/** Depth, and every rule of the tree's form, of a node and those below. */
function checkNode(node: TreeNode<TreeEntry>, limits = TREE_LIMITS): TreeEntry[] {
  const groups = new Set(node.entries.map(({ path }) => path[node.prefix.length]));
  const sum = node.entries.reduce((total, { weight }) => total + weight, 0);
  assert(
    groups.size === node.entries.length ||
      (sum + node.children.length <= limits.maxWeight &&
        node.entries.length <= limits.maxEntries),
    `'${node.prefix}' is too large`,
  );
  for (const { path } of node.entries) {
    assert(path.startsWith(node.prefix));
    assert(!node.children.some(({ prefix }) => path.startsWith(prefix)), `${path} is too high up`);
  }
  const digits = new Set(node.children.map(({ prefix }) => prefix[node.prefix.length]));
  assertEquals(digits.size, node.children.length, "a digit has two children");
  for (const child of node.children) {
    assert(child.prefix.startsWith(node.prefix) && child.prefix !== node.prefix);
    assert(child.children.length + child.entries.length > 0, `'${child.prefix}' is empty`);
  }
  return [...node.entries, ...node.children.flatMap((child) => checkNode(child, limits))];
}

Deno.test("PrefixTree contains all added entries, whatever the history", () => {
  const path = fc.tuple(fc.nat(3), fc.nat(15), fc.nat(15))
    .map((digits) => digits.map((digit) => digit.toString(16)).join(""));
  const step = fc.record({ path, weight: fc.integer({ min: 0, max: 4 }) });
  fc.assert(
    fc.property(fc.array(step, { minLength: 20, maxLength: 200, size: "max" }), (steps) => {
      const { tree, changes } = testTree();
      const expected = new Map<string, number>();
      for (const { path, weight } of steps) {
        const known = new Set(tree.prefixes());
        if (weight === 0) expected.delete(path);
        else expected.set(path, weight);
        if (weight === 0) tree.delete(entry(path));
        else tree.set(entry(path, "", weight));
        const touched = changes();
        for (const prefix of new Set(tree.prefixes()).symmetricDifference(known)) {
          assert(touched.includes(prefix), `'${prefix}' came or went without being touched`);
        }
      }
      const root = tree.node("");
      assert(root);
      const found = checkNode(root, SMALL).map(({ path, weight }) => [path, weight]);
      assertEquals(found.sort(), [...expected].sort());
    }),
    { numRuns: 200 },
  );
});
