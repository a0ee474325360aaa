import { assert, assertEquals } from "@std/assert";
import { toPlainValue, toValueText } from "./log_line.ts";

Deno.test("toValueText() writes different values differently", () => {
  const cyclic: Record<string, unknown> = {};
  cyclic["self"] = cyclic;
  const cases: readonly [value: unknown, text: string][] = [
    ["ns/name:port", "ns/name:port"],
    ["two words", '"two words"'],
    ["", '""'],
    ["a=b", '"a=b"'],
    ["line\nbreak", '"line\\nbreak"'],
    ["\u001b[2J", '"\\u001b[2J"'],
    ["\u009b2J\u2028\u202e", '"\\u009b2J\\u2028\\u202e"'],
    [7, "7"],
    [true, "true"],
    [undefined, "undefined"],
    [null, "null"],
    [12n, "12"],
    [{ a: 1, b: ["x"] }, '{"a":1,"b":["x"]}'],
    [new Map([["listen", 2]]), '[["listen",2]]'],
    [cyclic, '"[object Object]"'],
  ];
  for (const [value, text] of cases) assertEquals(toValueText("field", value), text);
});

Deno.test("toValueText() names the causes of an error, each once", () => {
  const error = new Error("Cannot sync", {
    cause: new Error("Cannot bind", { cause: new Error("Cannot bind") }),
  });
  assertEquals(toValueText("error", error), '"Cannot sync: Cannot bind"');
});

Deno.test("toPlainValue() removes secrets, by name and by form, at any depth", () => {
  assertEquals(toPlainValue("token", "abc"), "[redacted]");
  assertEquals(toPlainValue("user", { name: "a", token: "abc", url: "https://u:p@h/" }), {
    name: "a",
    token: "[redacted]",
    url: "https://[redacted]@h/",
  });
  assertEquals(toPlainValue("error", new Error("Bearer abc")), "Bearer [redacted]");
});

Deno.test("toPlainValue() shortens long values", () => {
  const text = toPlainValue("object", "x".repeat(5000)) as string;
  assert(text.endsWith("… (5000 characters)") && text.length < 2100);
  assert(typeof toPlainValue("object", { a: "x".repeat(5000) }) === "string");
});
