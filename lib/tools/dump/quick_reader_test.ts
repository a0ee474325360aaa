import { assertEquals } from "@std/assert";
import fc from "fast-check";
import * as v from "valibot";
import { testDump } from "../../../tests/support/builders/test_dump.ts";
import { DUMP_SCHEMA, INPUT_PART, OUTCOME_PART } from "./dump_schema.ts";
import { quickReader, REFUSED } from "./quick_reader.ts";

const PARTS: readonly v.GenericSchema[] = [DUMP_SCHEMA, INPUT_PART, OUTCOME_PART];

/** Returns the result of valibot. */
function slowly(schema: v.GenericSchema, value: unknown): unknown {
  const result = v.safeParse(schema, value);
  return result.success ? result.output : REFUSED;
}

/** Every object and list of a value, with the names in it. */
function* places(
  value: unknown,
): Generator<readonly [holder: Record<string, unknown>, name: string]> {
  if (typeof value !== "object" || value === null) return;
  const holder = value as Record<string, unknown>;
  for (const name of Object.keys(holder)) {
    yield [holder, name];
    yield* places(holder[name]);
  }
}

Deno.test("quickReader() reads a dump as the library does", () => {
  for (const part of PARTS) {
    const read = quickReader(part)(JSON.parse(testDump()));
    assertEquals(read, slowly(part, JSON.parse(testDump())));
    assertEquals(read === REFUSED, false);
  }
});

Deno.test("quickReader() accepts and refuses the same values as the library, anywhere in a dump", () => {
  const count = [...places(JSON.parse(testDump()))].length;
  const odd = fc.oneof(
    fc.jsonValue({ maxDepth: 2 }),
    fc.constantFrom("a\\u001b", "", "x".repeat(254), "IPv4", "10.0.0.1", "::1", 65_536, -1, 1e400),
  );
  const damage = fc.array(
    fc.record({ at: fc.nat(count - 1), value: odd, how: fc.constantFrom("set", "delete", "add") }),
    { minLength: 1, maxLength: 3 },
  );
  const seen = { refused: 0, read: 0 };
  fc.assert(
    fc.property(damage, fc.constantFrom(...PARTS), (steps, part) => {
      const dump = JSON.parse(testDump());
      const all = [...places(dump)];
      for (const { at, value, how } of steps) {
        const [holder, name] = all[at]!;
        if (how === "delete") delete holder[name];
        else holder[how === "add" ? `${name}-other` : name] = value;
      }
      const read = quickReader(part)(dump);
      assertEquals(read, slowly(part, dump));
      seen[read === REFUSED ? "refused" : "read"]++;
    }),
    { numRuns: 300 },
  );
  assertEquals(seen.refused > 0 && seen.read > 0, true, JSON.stringify(seen));
});

Deno.test("quickReader() leaves unknown schemas to the library", () => {
  const schemas: readonly v.GenericSchema[] = [
    v.pipe(v.string(), v.toUpperCase()),
    v.pipe(v.string(), v.minLength(2), v.maxLength(3), v.regex(/a/)),
    v.object({ a: v.optional(v.string(), "x"), b: v.exactOptional(v.nullable(v.number())) }),
    v.fallback(v.string(), "other"),
    v.number(),
    v.pipe(v.number(), v.finite()),
    v.union([v.literal("a"), v.number()]),
  ];
  const values: readonly unknown[] = [
    ...["a", "ab", "aab", "abcd", "", 1, NaN, Infinity, null, undefined, [], {}],
    ...[{ a: "y" }, { b: null }, { b: "x" }, { a: undefined }, { a: 1, b: 2 }],
  ];
  for (const schema of schemas) {
    for (const value of values) {
      assertEquals(quickReader(schema)(value), slowly(schema, value), `${schema.type} ${value}`);
    }
  }
});
