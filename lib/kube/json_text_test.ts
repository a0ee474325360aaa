import { assertEquals } from "@std/assert";
import fc from "fast-check";
import { findJsonItems, type FoundItems } from "./json_text.ts";

function find(text: string): FoundItems | undefined {
  const finding = findJsonItems(text);
  for (;;) {
    const step = finding.next();
    if (step.done) return step.value;
  }
}

Deno.test("findJsonItems() finds the same items as JSON.parse() in any list", () => {
  const key = fc.oneof(fc.string(), fc.constantFrom("items", "kind", '"items": ['));
  const value = fc.jsonValue({ maxDepth: 3 });
  const list = fc.record({
    before: fc.dictionary(key, value, { noNullPrototype: true }),
    items: fc.array(fc.oneof(value, fc.constantFrom({ items: [1, 2] }, "],[", '\\"'))),
    after: value,
    indent: fc.constantFrom(0, 1, 4),
  });
  fc.assert(
    fc.property(list, ({ before, items, after, indent }) => {
      const { items: _, ...rest } = before;
      const text = JSON.stringify({ ...rest, items, after }, null, indent);
      const found = find(text)!;
      assertEquals(
        found.items.map(({ start, end }) => JSON.parse(text.slice(start, end))),
        JSON.parse(text).items,
      );
      const envelope = JSON.parse(text.slice(0, found.start) + text.slice(found.end));
      assertEquals(envelope, JSON.parse(JSON.stringify({ ...rest, items: [], after })));
    }),
    { numRuns: 2_000, seed: 20261121 },
  );
});

const NO_LISTS: readonly string[] = [
  "",
  "{}",
  '{"a": {"items": [1]}}',
  '{"items": {"a": [1]}}',
  '{"items": [1, 2',
  '{"items": [{"a": "]',
  '"items": [1]',
  "}}}}",
];

for (const text of NO_LISTS) {
  Deno.test(`findJsonItems() finds no list in '${text}'`, () => {
    assertEquals(find(text), undefined);
  });
}

Deno.test("findJsonItems() lets other tasks run while it scans a long text", () => {
  const text = JSON.stringify({ items: Array(20_000).fill({ a: "b".repeat(30) }) });
  let steps = 0;
  for (const finding = findJsonItems(text); !finding.next().done;) steps++;
  assertEquals(steps > 10, true);
});
