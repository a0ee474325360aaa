import { assert, assertEquals } from "@std/assert";
import { readYaml } from "../../config/yaml_source.ts";
import {
  type ManifestList,
  type ManifestPart,
  splitDocuments,
  splitList,
} from "./manifest_file.ts";

function listOf(text: string, origin = { line: 1, column: 1 }): ManifestList | undefined {
  const splitting = splitList({ text, origin });
  for (;;) {
    const step = splitting.next();
    if (step.done) return step.value;
  }
}

function valueOf(part: ManifestPart): unknown {
  const { documents, errors } = readYaml(part.text, { file: "a.yaml", origin: part.origin });
  assertEquals(errors, []);
  return documents[0]?.value ?? null;
}

/** Makes a list long enough to be worth splitting. */
const FILLER = "#".repeat(20_000);

Deno.test("splitDocuments() splits at markers and returns the start of each part", () => {
  const text = "# head\n---\na: 1\n---   # c\nb: 2\n--- {c: 3}\n---";
  const parts = [...splitDocuments(text)].filter((part) => part !== undefined);
  assertEquals(parts.map(({ origin }) => origin.line), [1, 2, 4, 6, 7]);
  assertEquals(parts.map(valueOf), [null, { a: 1 }, { b: 2 }, { c: 3 }, null]);
  assertEquals(parts.map((part) => part.text).join(""), text);
});

const SAME: readonly { what: string; text: string }[] = [
  { what: "block scalars with dashes", text: "a: |\n  ---\n  x\nb: 1\n---\nc: >\n  y\n" },
  { what: "Windows lines", text: "a: 1\r\n---\r\nb: 2\r\n" },
  { what: "things that look like markers", text: "a: ----\n b\nc---: 1\n---\n----: 2\n" },
  { what: "directives", text: "%YAML 1.2\n---\na: 1\n---\nb: 2\n" },
  { what: "document ends", text: "a: 1\n...\n---\nb: 2\n...\n" },
];

for (const { what, text } of SAME) {
  Deno.test(`splitDocuments() finds the same documents as the parser with ${what}`, () => {
    const whole = readYaml(text, { file: "a.yaml" });
    assertEquals(whole.errors, []);
    const parts = [...splitDocuments(text)].filter((part) => part !== undefined).flatMap((part) =>
      readYaml(part.text, { file: "a.yaml" }).documents
    );
    assertEquals(parts.map(({ value }) => value), whole.documents.map(({ value }) => value));
  });
}

const LIST_ITEMS = [
  { kind: "Service", metadata: { name: "a" }, text: "- x\n--- y\nitems:\n" },
  { kind: "Service", metadata: { name: "b" }, list: [{ c: 1 }, { d: ["- e"] }] },
  { kind: "Service", metadata: { name: 'quo"te\\', odd: "],{[" } },
];

/** The list in the spellings that tools write. */
const SPELLINGS: readonly { what: string; text: string; line: number; column: number }[] = [
  {
    what: "YAML as kubectl writes it",
    text: "apiVersion: v1\nitems:\n- kind: Service\n  metadata:\n    name: a\n" +
      '  text: "- x\\n--- y\\nitems:\\n"\n' +
      "# a comment\n- kind: Service\n  metadata: {name: b}\n  list:\n  - c: 1\n  - d:\n    - '- e'\n\n" +
      "- kind: Service\n  metadata:\n    name: 'quo\"te\\'\n    odd: '],{['\nkind: List\n",
    line: 8,
    column: 1,
  },
  {
    what: "indented YAML with the kind before",
    text: "kind: List\napiVersion: v1\nitems:\n\n  # first\n  - kind: Service\n    metadata:\n" +
      "      name: a\n    text: |\n      - x\n      --- y\n      items:\n" +
      "  -\n    kind: Service\n    metadata: {name: b}\n    list: [{c: 1}, {d: ['- e']}]\n" +
      "  - kind: Service\n    metadata: {name: 'quo\"te\\', odd: '],{['}\n",
    line: 13,
    column: 1,
  },
  {
    what: "JSON as kubectl writes it",
    text: JSON.stringify({ apiVersion: "v1", items: LIST_ITEMS, kind: "List" }, null, 4),
    line: 11,
    column: 9,
  },
  {
    what: "JSON in one line",
    text: JSON.stringify({
      kind: "List",
      metadata: { items: "no" },
      apiVersion: "v1",
      items: LIST_ITEMS,
    }),
    line: 1,
    column: 142,
  },
];

for (const { what, text, line, column } of SPELLINGS) {
  Deno.test(`splitList() splits ${what}`, () => {
    const padded = text.startsWith("{") ? text + " ".repeat(20_000) : `${text}${FILLER}\n`;
    const list = listOf(padded);
    assert(list);
    const items = [...list.items];
    assertEquals(items.map(valueOf), LIST_ITEMS);
    const { kind, apiVersion, items: left } = valueOf(list.envelope) as Record<string, unknown>;
    assertEquals([kind, apiVersion], ["List", "v1"]);
    assertEquals(left ?? [], []);
    assertEquals(items[1]!.origin, { line, column });
    // Items inside of a larger file.
    const moved = listOf(padded, { line: 101, column: 1 });
    assertEquals([...moved!.items][1]!.origin, { line: line + 100, column });
  });
}

const NOT_SPLIT: readonly { what: string; text: string }[] = [
  { what: "a short list", text: "kind: List\nitems:\n- a: 1\n" },
  { what: "another kind with items", text: `kind: ConfigMap\nitems:\n- a: 1\n${FILLER}` },
  { what: "a list with aliases", text: `kind: List\nitems:\n- a: &x 1\n- b: *x\n${FILLER}` },
  { what: "a list in flow style", text: `kind: List\nitems: [{a: 1}]\n${FILLER}` },
  { what: "JSON without items", text: JSON.stringify({ kind: "List", x: FILLER }) },
  { what: "JSON that was cut short", text: `{"items": [{"a": 1}, {"b": "${FILLER}` },
];

for (const { what, text } of NOT_SPLIT) {
  Deno.test(`splitList() leaves ${what} whole`, () => {
    assertEquals(listOf(text), undefined);
  });
}

Deno.test("splitList() finds an empty JSON list", () => {
  const list = listOf(`{"items": [ ], "kind": "List"}${" ".repeat(20_000)}`);
  assertEquals([...list!.items], []);
});

Deno.test("splitList() keeps each syntax error inside of its item", () => {
  const list = listOf(`kind: List\nitems:\n- a: 1\n- b: ]\n- c: 3\n${FILLER}\n`)!;
  const errors = [...list.items].map(({ text, origin }) =>
    readYaml(text, { file: "a", origin }).errors
  );
  assertEquals(errors.map((found) => found.map(({ line, column }) => [line, column])), [
    [],
    [[4, 6]],
    [],
  ]);
});
