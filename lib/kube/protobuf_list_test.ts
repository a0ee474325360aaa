import { assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import {
  concat,
  envelope,
  message,
  protobufList,
  protobufService,
} from "../../tests/support/builders/protobuf_objects.ts";
import { SERVICE } from "../api/kinds/service.ts";
import { ListError, protobufItems } from "./list_page.ts";
import { slimObject } from "./slim.ts";
import { StringTable } from "./string_table.ts";

const MAGIC = new TextEncoder().encode("k8s\0");
const TYPE_META = message([[1, "v1"], [2, "ServiceList"]]);
const META = message([[2, "7"]]);

function decode(bytes: Uint8Array) {
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

const NAMES = ["a", "b".repeat(300), "wäb→🦕", "c"];
const LIST = protobufList("Service", NAMES.map((name) => protobufService(name)), { next: "more" });
const READ = {
  items: NAMES.map((name) => `${name} 10.0.0.1`),
  problems: [],
  meta: { resourceVersion: "7", continue: "more" },
};

Deno.test("protobufItems() gives the items and the metadata of a list", () => {
  assertEquals<unknown>(decode(LIST), READ);
});

Deno.test("protobufItems() reads an empty list", () => {
  const { items, meta } = decode(protobufList("Service", []));
  assertEquals<unknown>([items, meta], [[], { resourceVersion: "7", continue: undefined }]);
});

Deno.test("protobufItems() throws for a list that was cut short, at every place", () => {
  // The two empty fields behind the list say nothing.
  for (let end = 0; end < LIST.length - 4; end++) {
    assertThrows(() => decode(LIST.slice(0, end)), ListError);
  }
});

Deno.test("protobufItems() reads the other items where one is damaged", () => {
  const whole = protobufService("x");
  for (let at = 0; at < whole.length; at++) {
    for (const byte of [0, 0x7f, 0xff]) {
      const damaged = whole.slice();
      damaged[at] = byte;
      const list = protobufList("Service", [protobufService("a"), damaged, protobufService("b")]);
      const { items } = decode(list);
      assertEquals([items[0], items.at(-1)], ["a 10.0.0.1", "b 10.0.0.1"], `byte ${at}: ${byte}`);
    }
  }
  const damaged = whole.slice();
  // The tag of the port, before its value.
  damaged[damaged.findIndex((byte, at) => byte === 0x18 && damaged[at + 1] === 80)] = 0x1a;
  const { problems } = decode(protobufList("Service", [damaged]));
  assertEquals(problems, ["shop/x spec.ports[0].port"]);
});

for (
  const [name, bytes, reason] of [
    ["does not begin as protobuf does", new TextEncoder().encode("<html>"), "'k8s'"],
    ["is another object", envelope("Status", message([[2, "Failure"]])), "it is a Status"],
    ["is a list of another kind", protobufList("Pod", []), "it is a PodList, not a ServiceList"],
    ["has no version", envelope("ServiceList", message([[1, message([])]])), "resourceVersion"],
    ["has no metadata", envelope("ServiceList", message([])), "resourceVersion"],
    [
      "is encoded once more",
      concat([MAGIC, message([[1, TYPE_META], [2, message([[1, META]])], [3, "gzip"]])]),
      "content encoding",
    ],
    [
      "has an item that goes beyond the list",
      concat([MAGIC, message([[1, TYPE_META]]), new Uint8Array([0x12, 3, 0x12, 5, 0])]),
      "too large",
    ],
    ["has a number too large", concat([MAGIC, new Uint8Array(9).fill(0xff)]), "not intact"],
    ["has a field without length", concat([MAGIC, message([[1, 5]])]), "wire type 0"],
    [
      "announces an endless item",
      concat([
        MAGIC,
        message([[1, TYPE_META]]),
        new Uint8Array([0x12, 0xff, 0xff, 0xff, 0x7f, 0x12, 0xf0, 0xff, 0xff, 0x7e]),
      ]),
      "not intact",
    ],
  ] as const
) {
  Deno.test(`protobufItems() throws for a list that ${name}`, () => {
    const { message } = assertThrows(() => decode(bytes), ListError);
    assertStringIncludes(message, reason);
  });
}
