import { assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import fc from "fast-check";
import { ListDecoder, ListStreamError } from "./list_stream.ts";

function decode(text: string, size: number) {
  const bytes = new TextEncoder().encode(text);
  const buffer = new Uint8Array(size);
  const decoder = new ListDecoder();
  const items: unknown[] = [];
  for (let at = 0; at < bytes.length; at += size) {
    // One buffer for all chunks: a decoder that keeps a view instead of a copy fails.
    const part = bytes.subarray(at, at + size);
    buffer.set(part);
    items.push(...decoder.push(buffer.subarray(0, part.length)));
  }
  return { items, meta: decoder.finish() };
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
      "other lists beside items",
      JSON.stringify({ a: [{}], metadata: { resourceVersion: "5", items: [{}] }, items: ITEMS }),
      { resourceVersion: "5", continue: undefined },
    ],
  ] as const
) {
  Deno.test(`ListDecoder reads ${name}`, () => {
    for (const size of [1, 2, 5, 16, 1000]) {
      assertEquals(decode(text, size), { items: ITEMS, meta }, `chunks of ${size} bytes`);
    }
  });
}

for (const items of ["null", "[]", "[ ]"]) {
  Deno.test(`ListDecoder reads a list whose items are ${items}`, () => {
    const text = `{"metadata":{"resourceVersion":"5"},"items":${items}}`;
    assertEquals(decode(text, 3).items, []);
  });
}

Deno.test("ListDecoder gives what JSON.parse() gives, for any items and any cut", () => {
  const item = fc.dictionary(fc.string({ unit: "binary" }), fc.jsonValue());
  fc.assert(fc.property(fc.array(item), fc.integer({ min: 1, max: 40 }), (items, size) => {
    const text = JSON.stringify({ metadata: { resourceVersion: "1" }, items });
    assertEquals(decode(text, size).items, JSON.parse(text).items);
  }));
});

Deno.test("ListDecoder.finish() throws for a list that was cut short, at every place", () => {
  const text = JSON.stringify({ metadata: { resourceVersion: "5" }, items: [{ a: "b" }] });
  for (let end = 0; end < text.length; end++) {
    assertThrows(() => decode(text.slice(0, end), 7), ListStreamError);
  }
});

Deno.test("ListDecoder.finish() says what it misses in an answer that is no list", () => {
  const error = assertThrows(() => decode('{"kind":"Status"}', 7), ListStreamError);
  assertStringIncludes(error.message, "no metadata.resourceVersion");
});

Deno.test("ListDecoder gives the items before one that is not JSON, then throws", () => {
  const decoder = new ListDecoder();
  const items: unknown[] = [];
  const bytes = new TextEncoder().encode('{"items":[{"a":1},{oops}]}');
  assertThrows(() => {
    for (const item of decoder.push(bytes)) items.push(item);
  }, ListStreamError);
  assertEquals(items, [{ a: 1 }]);
});
