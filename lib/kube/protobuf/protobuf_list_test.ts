import { assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import {
  concat,
  envelope,
  message,
  protobufList,
  protobufService,
} from "../../../tests/support/builders/protobuf_objects.ts";
import { SERVICE } from "../../api/kinds/service.ts";
import { ListStreamError } from "../list_stream.ts";
import { slimObject } from "../slim.ts";
import { StringTable } from "../string_table.ts";
import { ProtobufListDecoder } from "./protobuf_list.ts";

const MAGIC = new TextEncoder().encode("k8s\0");
const TYPE_META = message([[1, "v1"], [2, "ServiceList"]]);
const META = message([[2, "7"]]);

function decode(bytes: Uint8Array, size = bytes.length) {
  // One buffer for all chunks: a decoder that keeps a view instead of a copy fails.
  const buffer = new Uint8Array(size);
  const decoder = new ProtobufListDecoder("Service");
  const items: string[] = [];
  const problems: string[] = [];
  for (let at = 0; at < bytes.length; at += size) {
    const part = bytes.subarray(at, at + size);
    buffer.set(part);
    for (const raw of decoder.push(buffer.subarray(0, part.length))) {
      const object = slimObject(SERVICE, raw, {
        strings: new StringTable(),
        onProblem: ({ object, path }) => problems.push(`${object} ${path}`),
      });
      if (object) items.push(`${object.metadata.name} ${object.spec.clusterIP}`);
    }
  }
  return { items, problems, meta: decoder.finish() };
}

const NAMES = ["a", "b".repeat(300), "wäb→🦕", "c"];
const LIST = protobufList("Service", NAMES.map((name) => protobufService(name)), { next: "more" });
const READ = {
  items: NAMES.map((name) => `${name} 10.0.0.1`),
  problems: [],
  meta: { resourceVersion: "7", continue: "more" },
};

Deno.test("ProtobufListDecoder gives the same items however the bytes are cut", () => {
  for (const size of [1, 2, 3, 7, 64, 1000, LIST.length]) {
    assertEquals<unknown>(decode(LIST, size), READ, `chunks of ${size} bytes`);
  }
});

Deno.test("ProtobufListDecoder reads an empty list", () => {
  const { items, meta } = decode(protobufList("Service", []), 3);
  assertEquals<unknown>([items, meta], [[], { resourceVersion: "7", continue: undefined }]);
});

Deno.test("ProtobufListDecoder.finish() throws for a list that was cut short, at every place", () => {
  // The two empty fields behind the list say nothing.
  for (let end = 0; end < LIST.length - 4; end++) {
    assertThrows(() => decode(LIST.slice(0, end), 7), ListStreamError);
  }
});

Deno.test("ProtobufListDecoder reads the other items where one is damaged", () => {
  const whole = protobufService("x");
  for (let at = 0; at < whole.length; at++) {
    for (const byte of [0, 0x7f, 0xff]) {
      const damaged = whole.slice();
      damaged[at] = byte;
      const list = protobufList("Service", [protobufService("a"), damaged, protobufService("b")]);
      const { items } = decode(list, 50);
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
    ["has no kind before the list", concat([MAGIC, message([[2, META]])]), "kind"],
    [
      "holds two lists",
      concat([MAGIC, message([[1, TYPE_META], [2, message([[1, META]])], [2, META]])]),
      "two lists",
    ],
    [
      "is encoded once more",
      concat([MAGIC, message([[1, TYPE_META], [2, message([[1, META]])], [3, "gzip"]])]),
      "content encoding",
    ],
    [
      "has an item that goes beyond the list",
      concat([MAGIC, message([[1, TYPE_META]]), new Uint8Array([0x12, 3, 0x12, 5, 0])]),
      "beyond its end",
    ],
    ["has a number too large", concat([MAGIC, new Uint8Array(9).fill(0xff)]), "too large"],
    ["has a field without length", concat([MAGIC, message([[1, 5]])]), "the tag 8"],
    [
      "announces an endless item",
      concat([
        MAGIC,
        message([[1, TYPE_META]]),
        new Uint8Array([0x12, 0xff, 0xff, 0xff, 0x7f, 0x12, 0xf0, 0xff, 0xff, 0x7e]),
      ]),
      "an item has more than",
    ],
    [
      "has much besides its items",
      envelope("ServiceList", message([[1, new Uint8Array(2 ** 20 + 1)]])),
      "besides its items",
    ],
  ] as const
) {
  Deno.test(`ProtobufListDecoder throws for a list that ${name}`, () => {
    for (const size of [1, 64, bytes.length]) {
      const { message } = assertThrows(() => decode(bytes, size), ListStreamError);
      assertStringIncludes(message, reason);
    }
  });
}
