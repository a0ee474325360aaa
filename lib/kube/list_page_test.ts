import { assert, assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import fc from "fast-check";
import { jsonItems, ListError } from "./list_page.ts";

function decode(text: string) {
  const items: unknown[] = [];
  const reading = jsonItems(text);
  for (let step = reading.next();; step = reading.next()) {
    if (step.done) return { items, meta: step.value };
    if (step.value !== undefined) items.push(step.value);
  }
}

const ITEMS = [
  { metadata: { name: "a]}[{" }, ports: [{ port: 80 }, { port: 81 }] },
  { text: 'quote " backslash \\ both \\" and "items":[' },
  { items: [{ items: [] }] },
  {},
];

for (
  const [name, text, meta] of [
    [
      "metadata before items",
      JSON.stringify({ kind: "List", metadata: { resourceVersion: "5" }, items: ITEMS }),
      { resourceVersion: "5", continue: undefined },
    ],
    [
      "metadata after items, and spaces",
      JSON.stringify(
        { items: ITEMS, metadata: { resourceVersion: "5", continue: "next" } },
        null,
        2,
      ),
      { resourceVersion: "5", continue: "next" },
    ],
    [
      "an empty continue, which ends the list",
      JSON.stringify({ metadata: { resourceVersion: "0", continue: "" }, items: ITEMS }),
      { resourceVersion: "0", continue: undefined },
    ],
    [
      "other lists besides items",
      JSON.stringify({ a: [{}], metadata: { resourceVersion: "5", items: [{}] }, items: ITEMS }),
      { resourceVersion: "5", continue: undefined },
    ],
  ] as const
) {
  Deno.test(`jsonItems() reads ${name}`, () => {
    assertEquals(decode(text), { items: ITEMS, meta });
  });
}

for (const items of ["null", "[]", "[ ]"]) {
  Deno.test(`jsonItems() reads a list whose items are ${items}`, () => {
    const text = `{"metadata":{"resourceVersion":"5"},"items":${items}}`;
    assertEquals(decode(text).items, []);
  });
}

Deno.test("jsonItems() gives the same values as JSON.parse(), for any items", () => {
  const item = fc.dictionary(fc.string({ unit: "binary" }), fc.jsonValue());
  fc.assert(fc.property(fc.array(item), (items) => {
    const text = JSON.stringify({ metadata: { resourceVersion: "1" }, items });
    assertEquals(decode(text).items, JSON.parse(text).items);
  }));
});

Deno.test("jsonItems() throws for a list that was cut short, at every place", () => {
  const text = JSON.stringify({ metadata: { resourceVersion: "5" }, items: [{ a: "b" }] });
  for (let end = 0; end < text.length; end++) {
    assertThrows(() => decode(text.slice(0, end)), ListError);
  }
});

Deno.test("jsonItems() names the missing part of an answer that is no list", () => {
  const error = assertThrows(() => decode('{"kind":"Status"}'), ListError);
  assertStringIncludes(error.message, "no metadata.resourceVersion");
});

Deno.test("jsonItems() gives the items before one that is not JSON, then throws", () => {
  const items: unknown[] = [];
  const text = '{"items":[{"a":1},{oops}]}';
  assertThrows(() => {
    for (const item of jsonItems(text)) items.push(item);
  }, ListError);
  assertEquals(items, [{ a: 1 }]);
});

/** Returns the result of a list: its items and its metadata, or the reason why it is refused. */
function outcome(text: string): unknown {
  try {
    return decode(text);
  } catch (error) {
    assert(error instanceof ListError);
    return error.message;
  }
}

const SPACE = fc.stringMatching(/^[ \t\r\n]{0,9}$/);
const KEY = fc.oneof(
  fc.constantFrom('"items"', '"it\\u0065ms"', '"metadata"', '"item"', '"itemss"'),
  fc.string({ unit: "binary" }).map((key) => JSON.stringify(key)),
);
const LIST = fc.array(fc.tuple(KEY, SPACE, fc.jsonValue()), { maxLength: 6 }).chain((members) =>
  fc.tuple(SPACE, fc.boolean()).map(([space, pretty]) => {
    const all = [...members, ['"metadata"', space, { resourceVersion: "5" }] as const];
    const texts = all.map(([key, gap, value]) =>
      `${gap}${key}${gap}:${gap}${JSON.stringify(value, null, pretty ? 2 : 0)}${gap}`
    );
    return `${space}{${texts.join()}}${space}`;
  })
);

Deno.test("jsonItems() gives the items of any list, or refuses it", () => {
  fc.assert(fc.property(LIST, (text) => {
    const whole = outcome(text);
    if (typeof whole === "string") return;
    assertEquals((whole as { items: unknown[] }).items, JSON.parse(text).items ?? []);
  }));
});

Deno.test("jsonItems() refuses a single object, which is not an empty list", () => {
  const text = '{"kind":"Service","metadata":{"name":"web","resourceVersion":"5"},"spec":{}}';
  assertThrows(() => decode(text), ListError, "it has no 'items'");
});

for (
  const [items, reason] of [
    ["{}", "has to be a list or null"],
    ['"a"', "has to be a list or null"],
    ['[],\n"items":[]', "'items' twice"],
    ["[{},]", "is not JSON"],
    ["[,{}]", "is not JSON"],
    [`[${"[".repeat(20_000)}${"]".repeat(20_000)}]`, "levels of nesting"],
    [`[[${"{},".repeat(500_000)}{}]]`, "values"],
  ] as const
) {
  Deno.test(`jsonItems() refuses a list whose items are ${items.slice(0, 20)}`, () => {
    const text = `{"metadata":{"resourceVersion":"5"},"items":${items}}`;
    const error = assertThrows(() => decode(text), ListError);
    assertStringIncludes(error.message, reason);
  });
}
