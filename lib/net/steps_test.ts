import { assert, assertEquals } from "@std/assert";
import fc from "fast-check";
import { atOnce, sortInSteps } from "./steps.ts";

Deno.test("sortInSteps() sorts any list as a sort at once does, and keeps the order of equals", () => {
  const item = fc.record({ rank: fc.nat(50), place: fc.nat() });
  fc.assert(
    fc.property(fc.array(item, { maxLength: 3_000, size: "max" }), (items) => {
      const compare = (left: typeof items[number], right: typeof items[number]) =>
        left.rank - right.rank;
      assertEquals(atOnce(sortInSteps(items, compare)), items.toSorted(compare));
    }),
    { numRuns: 30 },
  );
});

Deno.test("sortInSteps() pauses while it sorts a long list", () => {
  const items = Array.from({ length: 20_000 }, (_, index) => index * 7_919 % 20_000);
  let steps = 0;
  for (const _ of sortInSteps(items, (left, right) => left - right)) steps++;
  assert(steps > 200, `${steps} steps`);
});
