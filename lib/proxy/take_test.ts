import { assertEquals } from "@std/assert";
import { take } from "./take.ts";

for (
  const [limit, taken, left] of [
    [0, [], ["a", "b", "c"]],
    [2, ["a", "b"], ["c"]],
    [3, ["a", "b", "c"], []],
    [Infinity, ["a", "b", "c"], []],
  ] as const
) {
  Deno.test(`take() gives the oldest ${limit} entries and deletes them`, () => {
    const map = new Map([["a", 1], ["b", 2], ["c", 3]]);
    assertEquals<readonly string[]>([...take(map, limit)].map(([key]) => key), taken);
    assertEquals<readonly string[]>([...map.keys()], left);
  });
}
