import { assertEquals } from "@std/assert";
import fc from "fast-check";
import { compareLists } from "./compare_lists.ts";

const CASES: readonly { name: string; wanted: string; found: string; differences: string[] }[] = [
  { name: "nothing", wanted: "abc", found: "abc", differences: [] },
  { name: "what is missing", wanted: "abc", found: "ac", differences: ["missing 1"] },
  { name: "what is extra", wanted: "ac", found: "abc", differences: ["extra @1"] },
  { name: "what is altered", wanted: "abc", found: "axc", differences: ["altered 1@1"] },
  { name: "what is reordered", wanted: "abc", found: "bca", differences: ["reordered 0@2"] },
  { name: "what is there twice", wanted: "ab", found: "aab", differences: ["extra @1"] },
  {
    name: "several at once",
    wanted: "abcdef",
    found: "bacxfy",
    differences: ["reordered 0@1", "altered 3@3", "missing 4", "extra @5"],
  },
  { name: "everything missing", wanted: "ab", found: "", differences: ["missing 0", "missing 1"] },
];

for (const { name, wanted, found, differences } of CASES) {
  Deno.test(`compareLists() reports ${name}`, () => {
    const reported = compareLists([...wanted], [...found]).map(({ kind, ...at }) =>
      `${kind} ${at.wanted ?? ""}${at.found === undefined ? "" : `@${at.found}`}`
    );
    assertEquals(reported, differences);
  });
}

Deno.test("compareLists() accounts for every item of both lists", () => {
  const list = fc.array(fc.constantFrom("a", "b", "c", "d"), { maxLength: 12 });
  fc.assert(fc.property(list, list, (wanted, found) => {
    const differences = compareLists(wanted, found);
    assertEquals(differences.length === 0, wanted.join() === found.join());
    const places = (side: "wanted" | "found") =>
      differences.map((each) => each[side]).filter((at) => at !== undefined);
    for (const side of ["wanted", "found"] as const) {
      assertEquals(new Set(places(side)).size, places(side).length);
    }
    // What is in its place is the same in both.
    const rest = (items: readonly string[], side: "wanted" | "found") =>
      items.filter((_, index) => !places(side).includes(index)).join();
    assertEquals(rest(wanted, "wanted"), rest(found, "found"));
  }));
});

Deno.test("compareLists() ends with 200,000 rules of which half differ", () => {
  const wanted = Array.from({ length: 200_000 }, (_, index) => `rule ${index}`);
  const found = wanted.map((rule, index) => index % 2 === 0 ? rule : `other ${index}`);
  // Each with each, it would not come to an end.
  assertEquals(compareLists(wanted, found).length, 100_000);
});
