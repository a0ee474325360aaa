import { assert, assertEquals, assertMatch } from "@std/assert";
import { MAX_PLAIN_LENGTH, MAX_YAML_LENGTH, readYaml, type YamlResult } from "./yaml_source.ts";

const FILE = "a.yaml";

function valuesOf({ documents, errors }: YamlResult): unknown[] {
  assertEquals(errors, []);
  return documents.map((document) => document.value);
}

/** The lines of the errors of a text that must be refused. */
function errorLines(text: string, quick = false): number[] {
  const { errors } = readYaml(text, { file: FILE, quick });
  assert(errors.length > 0, `accepted: ${text.slice(0, 80)}`);
  return errors.map((error) => error.line);
}

Deno.test("readYaml() reads each document of a text", () => {
  const text = "a: 1\n---\nb: [x, null]\n---\n# nothing\n---\nc: 'yes'\n";
  assertEquals(valuesOf(readYaml(text, { file: FILE })), [
    { a: 1 },
    { b: ["x", null] },
    null,
    { c: "yes" },
  ]);
});

Deno.test("readYaml() keeps keys strings and leaves timestamps and merge keys alone", () => {
  const text = "1: a\ntrue: b\n<<: c\nat: 2026-01-02T03:04:05Z\n";
  assertEquals(valuesOf(readYaml(text, { file: FILE })), [
    { "1": "a", true: "b", "<<": "c", at: "2026-01-02T03:04:05Z" },
  ]);
});

Deno.test("readYaml() as kube-proxy merges no prototype", () => {
  const text = "a: &x {constructor: 1}\nb:\n  <<: *x\n";
  const [value] = valuesOf(readYaml(text, { file: FILE, asKubeProxy: true }));
  assertEquals(value, { a: { constructor: 1 }, b: { constructor: 1 } });
});

Deno.test("readYaml() accepts anchors and aliases", () => {
  assertEquals(valuesOf(readYaml("a: &x {b: 1}\nc: *x\n", { file: FILE })), [
    { a: { b: 1 }, c: { b: 1 } },
  ]);
});

Deno.test("readYaml() names file, line and column of an error", () => {
  const { errors } = readYaml("a: 1\nb: ]\n", { file: FILE });
  assertEquals(errors.map(({ file, line, column }) => ({ file, line, column })), [
    { file: FILE, line: 2, column: 4 },
  ]);
  assertMatch(errors[0]!.message, /^Cannot read YAML: /);
});

const REFUSED: readonly { what: string; text: string; line: number }[] = [
  { what: "a tab as indent", text: "a:\n\tb: 1\n", line: 2 },
  { what: "a bad indent", text: "a:\n  b: 1\n c: 2\n", line: 3 },
  { what: "an unclosed quote", text: 'a: 1\nb: "x', line: 2 },
  { what: "a key twice", text: "a:\n  b: 1\n  c: 1\n  b: 2\n", line: 4 },
  { what: "a key twice in flow style", text: "a:\n  {b: 1, b: 2}\n", line: 2 },
  { what: "__proto__ as a key", text: "a: 1\n__proto__: {x: 1}\n", line: 2 },
  { what: "__proto__ in escapes", text: 'a: 1\n"\\x5f_proto_\\u005f": {x: 1}\n', line: 2 },
  { what: "__proto__ in JSON", text: '{"a": 1,\n"__proto__": {"x": 1}}', line: 2 },
  { what: "__proto__ in JSON escapes", text: '{"a": 1,\n"\\u005f_proto__": {"x": 1}}', line: 2 },
  { what: "an alias without an anchor", text: "a: 1\nb: *x\n", line: 2 },
  { what: "an alias inside of its anchor", text: "a: &x\n  - *x\n", line: 2 },
  { what: "a mapping as a key", text: "a: 1\n? {b: 1}\n: c\n", line: 2 },
  { what: "an unknown tag", text: "a: 1\nb: !Ref x\n", line: 2 },
  { what: "a template that was not filled in", text: "a: 1\nb: {{ .Values.port }}\n", line: 2 },
];

for (const { what, text, line } of REFUSED) {
  Deno.test(`readYaml() refuses ${what} and names its line`, () => {
    assert(errorLines(text).includes(line), `lines ${errorLines(text)}`);
    assert(errorLines(text, true).includes(line), `quick: lines ${errorLines(text, true)}`);
  });
}

Deno.test("readYaml() keeps the good documents next to a bad one", () => {
  const { documents, errors } = readYaml("a: 1\n---\nb: *x\n---\nc: 3\n", { file: FILE });
  assertEquals(documents.map((document) => document.value), [{ a: 1 }, { c: 3 }]);
  assertEquals(errors.map((error) => error.line), [3]);
});

Deno.test("readYaml() refuses aliases that multiply", () => {
  const lines = [..."bcdefghi"].map((name, index) => {
    const previous = String.fromCharCode(97 + index);
    return `${name}: &${name} [${Array(9).fill(`*${previous}`).join(",")}]\n`;
  });
  const text = `a: &a [x,x,x,x,x,x,x,x,x]\n${lines.join("")}`;
  for (const quick of [false, true]) assert(errorLines(text, quick).length <= 10);
});

/** Texts for which the exact parser would take seconds, with the expected reason of the refusal. */
const BOMBS: readonly { what: string; text: string; reason: RegExp }[] = [
  { what: "aliases", text: `a: &a x\nb: [${"*a,".repeat(100_000)}]\n`, reason: /10000 tokens/ },
  { what: "brackets", text: "[".repeat(100_000), reason: /nested more than 64 levels/ },
  { what: "closing brackets", text: "]".repeat(100_000), reason: /10000 tokens/ },
  { what: "mappings", text: "{a: ".repeat(50_000), reason: /nested more than 64 levels/ },
  { what: "list items", text: "- ".repeat(50_000), reason: /nested more than 64 levels/ },
  { what: "tags", text: "- !!str a\n".repeat(50_000), reason: /10000 tokens/ },
  { what: "letters", text: "a".repeat(MAX_PLAIN_LENGTH + 1), reason: /524288 are accepted/ },
];

for (const { what, text, reason } of BOMBS) {
  Deno.test(`readYaml() refuses too many ${what} before it parses them`, () => {
    for (const quick of [false, true]) {
      const { errors: [error, ...others] } = readYaml(text, { file: FILE, quick });
      assertMatch(error!.message, reason);
      assertEquals(others, []);
    }
  });
}

Deno.test("readYaml() names the line at which a text exceeds a bound", () => {
  const deep = `a: "${"[".repeat(100)}"\nb:\n  ${"[".repeat(100)}\n`;
  assertEquals(errorLines(deep), [3]);
  assertEquals(errorLines(`# \u00fc\n${"a: b\n".repeat(5_000)}`), [1_430]);
});

/** Texts of the greatest length, made of these over and over: each kind of token that YAML has. */
const REPEATED: readonly (readonly [head: string, text: string])[] = [
  ...["[", "]", "{", "[],", "[]", ",", "- ", "? ", ": ", "a:", "&a ", "*a ", "!", "%\n", "...\n"],
  ...["ü: a\n", "#\n", "\n", "\r", "\t", " ", "''", "- ''\n", "a: |\n", "<<: *a\n", "a: b\n"],
].map((text): [string, string] => ["", text]).concat([
  ['"', "a\n"],
  ['"', "\\u0061"],
  ["a: >\n", " a\n"],
  ["a: |\n", "  a\n"],
  ['{"a":', "["],
]);

Deno.test("readYaml() reads or refuses hostile texts of the greatest length, with few errors", () => {
  for (const [head, text] of REPEATED) {
    const hostile = head +
      text.repeat(Math.floor((MAX_YAML_LENGTH - 1 - head.length) / text.length));
    // Without the bounds some of them would take minutes.
    const { errors } = readYaml(hostile, { file: FILE, quick: true });
    assert(errors.length <= 10, JSON.stringify(head + text));
  }
});

Deno.test("readYaml() counts neither brackets in words nor dashes of several lines as nesting", () => {
  const texts = [`a: "${"[".repeat(100)}"`, "- a\n".repeat(100), `a: !!str ${"-".repeat(100)}`];
  for (const text of texts) assertEquals(readYaml(text, { file: FILE }).errors, []);
});

Deno.test("readYaml() leaves Object.prototype alone", () => {
  for (const quick of [false, true]) {
    readYaml('{"__proto__": {"polluted": 1}}', { file: FILE, quick });
    readYaml("constructor: {prototype: {polluted: 1}}", { file: FILE, quick });
  }
  assertEquals(({} as Record<string, unknown>)["polluted"], undefined);
});

const POSITIONED = `# a comment
spec:
  ports:
    - name: web
      port: 80

    - name: dns
      port: 53
  empty:
list: [{a: 1},
  {b: 2}]
`;
const POSITIONS: readonly { path: (string | number)[]; at: [number, number] }[] = [
  { path: [], at: [2, 1] },
  { path: ["spec"], at: [2, 1] },
  { path: ["spec", "ports"], at: [3, 3] },
  { path: ["spec", "ports", 1], at: [7, 7] },
  { path: ["spec", "ports", 1, "port"], at: [8, 7] },
  { path: ["spec", "ports", 1, "nodePort"], at: [7, 7] },
  { path: ["spec", "ports", 7, "port"], at: [3, 3] },
  { path: ["spec", "empty"], at: [9, 3] },
  { path: ["spec", "empty", "deeper"], at: [9, 3] },
  { path: ["nothing", "here"], at: [2, 1] },
  { path: ["list", 1, "b"], at: [11, 4] },
];

for (const { path, at } of POSITIONS) {
  Deno.test(`positionOf() finds ${JSON.stringify(path)}`, () => {
    for (const quick of [false, true]) {
      const document = readYaml(POSITIONED, { file: FILE, quick }).documents[0]!;
      const { line, column } = document.positionOf(path);
      assertEquals([line, column], at);
    }
  });
}

Deno.test("positionOf() follows aliases and counts from the origin of the text", () => {
  const options = { file: FILE, origin: { line: 101, column: 5 } };
  const document = readYaml("a: &x\n  b: 1\nc: *x\n", options).documents[0]!;
  assertEquals(document.positionOf(["a"]), { line: 101, column: 5 });
  assertEquals(document.positionOf(["c", "b"]), { line: 102, column: 3 });
});

Deno.test("readYaml() counts the lines of errors from the origin too", () => {
  const { errors } = readYaml("b: *x", { file: FILE, origin: { line: 9, column: 3 } });
  assertEquals(errors.map(({ line, column }) => [line, column]), [[9, 6]]);
});
