import { assertEquals } from "@std/assert";
import fc from "fast-check";
import { deepEqual } from "./deep_equal.ts";

const UNEQUAL: readonly (readonly [left: unknown, right: unknown])[] = [
  [1, "1"],
  [0, undefined],
  [null, undefined],
  [null, {}],
  [{}, null],
  [{ a: 1 }, { a: 2 }],
  [{ a: 1 }, { b: 1 }],
  [{ a: undefined }, { b: undefined }],
  [{ a: 1 }, { a: 1, b: undefined }],
  [[1, 2], [1]],
  [[1, 2], [2, 1]],
  [[], {}],
  [{}, []],
  [{ a: [{ b: 1 }] }, { a: [{ b: 2 }] }],
];

for (const [left, right] of UNEQUAL) {
  Deno.test(`deepEqual() distinguishes ${Deno.inspect(left)} from ${Deno.inspect(right)}`, () => {
    assertEquals(deepEqual(left, right), false);
  });
}

Deno.test("deepEqual() holds for a value and its copy", () => {
  fc.assert(
    fc.property(fc.jsonValue(), (value) => {
      assertEquals(deepEqual(value, structuredClone(value)), true);
    }),
  );
});

Deno.test("deepEqual() does not look into identical objects", () => {
  const shared = new Proxy({}, {
    ownKeys() {
      throw new Error("Looked into a shared part");
    },
  });
  assertEquals(deepEqual({ shared }, { shared }), true);
});
