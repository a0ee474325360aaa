import { assert, assertEquals } from "@std/assert";
import fc from "fast-check";
import { stringify } from "yaml";
import { parsePlainYaml } from "./plain_yaml.ts";
import { readYaml } from "./yaml_source.ts";

Deno.test("parsePlainYaml() reads plain YAML and JSON", () => {
  assertEquals(parsePlainYaml("a: 1\nb: [x, y]\nat: 2026-01-02T03:04:05Z\n"), {
    isJson: false,
    value: { a: 1, b: ["x", "y"], at: "2026-01-02T03:04:05Z" },
  });
  assertEquals(parsePlainYaml('\n {"a": {"b": [1, null]}}\n'), {
    isJson: true,
    value: { a: { b: [1, null] } },
  });
});

const LEFT_ALONE: readonly string[] = [
  "a: &x 1\nb: *x",
  "a: !!str 1",
  "? a\n: b",
  "<<: {a: 1}",
  "__proto__: 1",
  '{"__proto__": 1}',
  '{"\\u005F_proto__": 1}',
  'a: "\\x5f"',
  "a: 010",
  "a: 1_000",
  "a: 0b11",
  "a: -.5",
  "1: a",
  "True: a",
  "~: a",
  '{"a":1,"b":010}',
  "a: {{ .Values.port }}",
  "a: [[x]: y]",
  "a:\tb",
  "a: ü",
  "a: 1\n---\nb: 2",
  "a: 1\na: 2",
  "a: ]",
];

for (const text of LEFT_ALONE) {
  Deno.test(`parsePlainYaml() leaves ${JSON.stringify(text)} to the exact parser`, () => {
    assertEquals(parsePlainYaml(text), undefined);
  });
}

Deno.test("parsePlainYaml() accepts quoted lines without indentation, up to a limit", () => {
  const quoted = (lines: number): string => `a: "${"x\n".repeat(lines)}"`;
  const few = parsePlainYaml(quoted(3));
  assertEquals(few, { isJson: false, value: { a: "x x x " } });
  // A warning for each line held up the event loop for 3 s.
  assertEquals(parsePlainYaml(quoted(250_000)), undefined);
});

/** Lines and pieces as they stand in manifests, and worse. */
const PIECES = [
  ..."-:,[]{}#|>'\"~ab01.+_/eEx%@`?!&*",
  ...["\n", "\n  ", "\n- ", "\n  - ", ": ", " #", "null", "true", "1e3", ".5", "12."],
  ...["0x1f", "::1", "10.0.0.1", "a: ", "b: ", "key", "- ", ": |\n  ", ": >-\n  ", "\\n"],
  ...["''", "  ", "\r\n", "0o7"],
];

Deno.test("parsePlainYaml() leaves keys without a value to the exact parser", () => {
  for (const text of ["{~}", "{a: 1, null}", "{ Null , b: 2}"]) {
    assertEquals(parsePlainYaml(text), undefined, text);
  }
  assertEquals(parsePlainYaml("{a: ~, b: null}")?.value, { a: null, b: null });
});

Deno.test("parsePlainYaml() never reads a value that the exact parser reads differently", () => {
  let read = 0;
  const text = fc.array(fc.constantFrom(...PIECES), { maxLength: 14 }).map((all) => all.join(""));
  fc.assert(
    fc.property(text, (text) => {
      const plain = parsePlainYaml(text);
      const exact = readYaml(text, { file: "a.yaml" });
      // What the exact parser refuses (a lone comma, say) only has to be harmless.
      if (!plain || exact.errors.length > 0) return;
      read++;
      assertEquals(plain.value, exact.documents[0]?.value ?? null, JSON.stringify(text));
    }),
    { numRuns: 20_000, seed: 20261121 },
  );
  assert(read > 1_000, `only ${read} texts were plain`);
});

Deno.test("parsePlainYaml() reads the text of any value as the exact parser does", () => {
  const value = fc.jsonValue({ maxDepth: 4 });
  fc.assert(
    fc.property(value, fc.boolean(), (value, flow) => {
      const text = flow ? JSON.stringify(value) : stringify(value);
      const plain = parsePlainYaml(text);
      if (plain) assertEquals(plain.value, readYaml(text, { file: "a" }).documents[0]?.value);
    }),
    { numRuns: 2_000, seed: 20261121 },
  );
});

Deno.test("parsePlainYaml() takes time in proportion to the text", () => {
  // A pattern that looks past more than one run would take minutes for the longest of texts.
  for (const piece of ["\n", " ", "{ ", "] ", "- ", "-", "1", "a: ", "\n -", "|", ".", "a\n"]) {
    parsePlainYaml(piece.repeat(512 * 1024 / piece.length));
  }
});

Deno.test("parsePlainYaml() reads JSON behind a document marker", () => {
  assertEquals(parsePlainYaml('--- \n{"a":{"b":[1,"x"]}}\n'), {
    isJson: true,
    value: { a: { b: [1, "x"] } },
  });
});
