import { assert, assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import fc from "fast-check";
import { countBytes } from "../../tests/support/count_bytes.ts";
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
      "other lists besides items",
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

Deno.test("ListDecoder gives the same values as JSON.parse(), for any items and any cut", () => {
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

Deno.test("ListDecoder.finish() names the missing part of an answer that is no list", () => {
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

/** Returns the result of a list: its items and its metadata, or the reason why it is refused. */
function outcome(text: string, size: number): unknown {
  try {
    return decode(text, size);
  } catch (error) {
    assert(error instanceof ListStreamError);
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

Deno.test("ListDecoder gives one result for any list, however it is cut", () => {
  fc.assert(fc.property(LIST, fc.integer({ min: 1, max: 40 }), (text, size) => {
    const whole = outcome(text, text.length * 4);
    assertEquals(outcome(text, size), whole);
    if (typeof whole === "string") return;
    assertEquals((whole as { items: unknown[] }).items, JSON.parse(text).items ?? []);
  }));
});

Deno.test("ListDecoder refuses a single object, which is not an empty list", () => {
  const text = '{"kind":"Service","metadata":{"name":"web","resourceVersion":"5"},"spec":{}}';
  assertThrows(() => decode(text, 1000), ListStreamError, "it has no 'items'");
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
  Deno.test(`ListDecoder refuses a list whose items are ${items.slice(0, 20)}`, () => {
    const text = `{"metadata":{"resourceVersion":"5"},"items":${items}}`;
    const error = assertThrows(() => decode(text, 1000), ListStreamError);
    assertStringIncludes(error.message, reason);
  });
}

for (const size of [100, 65_536]) {
  Deno.test(`ListDecoder ends at an endless item, and an endless beginning (chunks of ${size})`, () => {
    for (const begin of ['{"items":[{"a":"', '{"a":"', '{"items":[', "{"]) {
      const chunk = new TextEncoder().encode((begin.endsWith('"') ? "a" : " ").repeat(size));
      const decoder = new ListDecoder();
      for (const _ of decoder.push(new TextEncoder().encode(begin)));
      let bytes = 0;
      const pushing = () => {
        for (; bytes < 64 * 1024 * 1024; bytes += size) for (const _ of decoder.push(chunk));
      };
      assertStringIncludes(assertThrows(pushing, ListStreamError).message, "more than");
      assert(bytes < 20 * 1024 * 1024, `${bytes} bytes were read`);
    }
  });
}

/** Lists of about `length` bytes. */
const ODD_LISTS: Readonly<Record<string, (length: number) => string>> = {
  "lists before its items": (length) => `"a":[],`.repeat(length / 7),
  "keys before its items": (length) => `"items1":1,`.repeat(length / 11),
  "a long key": (length) => `"${"items".repeat(length / 5)}":[1],`,
  "large metadata": (length) => `"metadata":{"a":[${"[],".repeat(length / 3)}1]},`,
  "much whitespace": (length) => " ".repeat(length),
  "deep nesting": (length) =>
    `"a":[${`${"[".repeat(900)}${"]".repeat(900)},`.repeat(length / 1801)}1],`,
  "escapes": (length) => `"a":"${'\\"\\\\'.repeat(length / 4)}",`,
};

for (const [name, envelope] of Object.entries(ODD_LISTS)) {
  Deno.test(`ListDecoder handles each byte of a list with ${name} a few times at most`, () => {
    for (const length of [50_000, 200_000]) {
      const text = `{${envelope(length)}"metadata":{"resourceVersion":"5"},"items":[{}]}`;
      for (const size of [1, 7, 16_384]) {
        const counting = countBytes();
        assertEquals(decode(text, size).items, [{}]);
        const handled = counting.stop();
        assert(handled <= 8 * text.length, `${handled} bytes of ${text.length}, cut by ${size}`);
      }
    }
  });
}
