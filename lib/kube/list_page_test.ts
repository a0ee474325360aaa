import { assert, assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import fc from "fast-check";
import {
  concat,
  envelope,
  message,
  protobufList,
  protobufService,
} from "../../tests/support/builders/protobuf_objects.ts";
import { SERVICE } from "../api/kinds/service.ts";
import { jsonItems, ListError, type ListMeta, protobufItems } from "./list_page.ts";
import { slimObject } from "./slim.ts";
import { StringTable } from "./string_table.ts";

function read(reading: Generator<unknown, ListMeta>, items: unknown[] = []) {
  for (let step = reading.next();; step = reading.next()) {
    if (step.done) return { items, meta: step.value };
    if (step.value !== undefined) items.push(step.value);
  }
}

const readJson = (text: string, items?: unknown[]) => read(jsonItems(text), items);

const ITEMS = [
  { metadata: { name: "a]}[{" }, ports: [{ port: 80 }, { port: 81 }] },
  { text: 'quote " backslash \\ both \\" and "items":[' },
  { items: [{ items: [] }] },
  {},
];

for (
  const [name, list, next] of [
    ["metadata before items", { metadata: { resourceVersion: "5" }, items: ITEMS }],
    [
      "metadata after items",
      { items: ITEMS, metadata: { resourceVersion: "5", continue: "next" } },
      "next",
    ],
    ["an empty continue", { metadata: { resourceVersion: "5", continue: "" }, items: ITEMS }],
    [
      "other lists besides items",
      { a: [{}], metadata: { resourceVersion: "5", items: [{}] }, items: ITEMS },
    ],
  ] as const
) {
  Deno.test(`jsonItems() reads ${name}, with and without spaces`, () => {
    const expected = { items: ITEMS, meta: { resourceVersion: "5", continue: next } };
    for (const indent of [0, 2]) {
      assertEquals(readJson(JSON.stringify(list, null, indent)), expected);
    }
  });
}

Deno.test("jsonItems() reads an empty list", () => {
  for (const items of ["null", "[]", "[ ]"]) {
    const text = `{"metadata":{"resourceVersion":"5"},"items":${items}}`;
    assertEquals(readJson(text).items, []);
  }
});

Deno.test("jsonItems() gives the same values as JSON.parse(), for any items", () => {
  const item = fc.dictionary(fc.string({ unit: "binary" }), fc.jsonValue());
  fc.assert(fc.property(fc.array(item), (items) => {
    const text = JSON.stringify({ metadata: { resourceVersion: "1" }, items });
    assertEquals(readJson(text).items, JSON.parse(text).items);
  }));
});

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
    let items: unknown[];
    try {
      ({ items } = readJson(text));
    } catch (error) {
      return assert(error instanceof ListError);
    }
    assertEquals(items, JSON.parse(text).items ?? []);
  }));
});

Deno.test("jsonItems() gives the items before one that is not JSON, then throws", () => {
  const items: unknown[] = [];
  assertThrows(() => readJson('{"items":[{"a":1},{oops}]}', items), ListError);
  assertEquals(items, [{ a: 1 }]);
});

for (
  const [text, reason] of [
    ['{"kind":"Status"}', "no metadata.resourceVersion"],
    // It is not an empty list.
    ['{"kind":"Service","metadata":{"resourceVersion":"5"},"spec":{}}', "it has no 'items'"],
    ...([
      ["{}", "has to be a list or null"],
      ['"a"', "has to be a list or null"],
      ['[],\n"items":[]', "'items' twice"],
      ["[{},]", "is not JSON"],
      ["[,{}]", "is not JSON"],
      [`[${"[".repeat(20_000)}${"]".repeat(20_000)}]`, "levels of nesting"],
      [`[[${"{},".repeat(500_000)}{}]]`, "values"],
    ] as const).map(([items, reason]) =>
      [`{"metadata":{"resourceVersion":"5"},"items":${items}}`, reason] as const
    ),
  ]
) {
  Deno.test(`jsonItems() refuses ${text.slice(0, 70)}`, () => {
    assertStringIncludes(assertThrows(() => readJson(text), ListError).message, reason);
  });
}

function readProtobuf(bytes: Uint8Array) {
  const items: string[] = [];
  const problems: string[] = [];
  const reading = protobufItems(bytes, "Service");
  for (let step = reading.next();; step = reading.next()) {
    if (step.done) return { items, problems, meta: step.value };
    const object = slimObject(SERVICE, step.value, {
      strings: new StringTable(),
      onProblem: ({ object, path }) => problems.push(`${object} ${path}`),
    });
    if (object) items.push(`${object.metadata.name} ${object.spec.clusterIP}`);
  }
}

const MAGIC = encode("k8s\0");
const TYPE_META = message([[1, message([[1, "v1"], [2, "ServiceList"]])]]);
const NAMES = ["a", "b".repeat(300), "wäb→🦕", "c"];
const PROTOBUF = protobufList("Service", NAMES.map((name) => protobufService(name)), {
  next: "more",
});

Deno.test("protobufItems() gives the items and the metadata of a list", () => {
  assertEquals<unknown>(readProtobuf(PROTOBUF), {
    items: NAMES.map((name) => `${name} 10.0.0.1`),
    problems: [],
    meta: { resourceVersion: "7", continue: "more" },
  });
  const { items, meta } = readProtobuf(protobufList("Service", []));
  assertEquals<unknown>([items, meta], [[], { resourceVersion: "7", continue: undefined }]);
});

Deno.test("a list that was cut short is refused, in JSON and in protobuf, at every place", () => {
  const text = JSON.stringify({ metadata: { resourceVersion: "5" }, items: [{ a: "b" }] });
  for (let end = 0; end < text.length; end++) {
    assertThrows(() => readJson(text.slice(0, end)), ListError);
  }
  // The two empty fields behind the list say nothing.
  for (let end = 0; end < PROTOBUF.length - 4; end++) {
    assertThrows(() => readProtobuf(PROTOBUF.slice(0, end)), ListError);
  }
});

Deno.test("protobufItems() reads the other items where one is damaged", () => {
  const whole = protobufService("x");
  for (let at = 0; at < whole.length; at++) {
    for (const byte of [0, 0x7f, 0xff]) {
      const damaged = whole.slice();
      damaged[at] = byte;
      const list = protobufList("Service", [protobufService("a"), damaged, protobufService("b")]);
      const { items } = readProtobuf(list);
      assertEquals([items[0], items.at(-1)], ["a 10.0.0.1", "b 10.0.0.1"], `byte ${at}: ${byte}`);
    }
  }
  const damaged = whole.slice();
  // The tag of the port, before its value.
  damaged[damaged.findIndex((byte, at) => byte === 0x18 && damaged[at + 1] === 80)] = 0x1a;
  const { problems } = readProtobuf(protobufList("Service", [damaged]));
  assertEquals(problems, ["shop/x spec.ports[0].port"]);
});

for (
  const [name, bytes, reason] of [
    ["does not begin as protobuf does", encode("<html>"), "'k8s'"],
    ["is another object", envelope("Status", message([[2, "Failure"]])), "it is a Status"],
    ["is a list of another kind", protobufList("Pod", []), "it is a PodList, not a ServiceList"],
    ["has no version", envelope("ServiceList", message([[1, message([])]])), "resourceVersion"],
    ["has no metadata", envelope("ServiceList", message([])), "resourceVersion"],
    [
      "is encoded once more",
      concat([MAGIC, TYPE_META, message([[2, message([[1, message([[2, "7"]])]])], [3, "gzip"]])]),
      "content encoding",
    ],
    [
      "has an item that goes beyond the list",
      concat([MAGIC, TYPE_META, new Uint8Array([0x12, 3, 0x12, 5, 0])]),
      "too large",
    ],
    ["has a number too large", concat([MAGIC, new Uint8Array(9).fill(0xff)]), "not intact"],
    ["has a field without length", concat([MAGIC, message([[1, 5]])]), "wire type 0"],
    [
      "announces an endless item",
      concat([
        ...[MAGIC, TYPE_META],
        new Uint8Array([0x12, 0xff, 0xff, 0xff, 0x7f, 0x12, 0xf0, 0xff, 0xff, 0x7e]),
      ]),
      "not intact",
    ],
  ] as const
) {
  Deno.test(`protobufItems() throws for a list that ${name}`, () => {
    assertStringIncludes(assertThrows(() => readProtobuf(bytes), ListError).message, reason);
  });
}

function encode(text: string): Uint8Array {
  return new TextEncoder().encode(text);
}
