import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import {
  concat,
  envelope,
  message,
  protobufEvent,
  protobufService,
} from "../../tests/support/builders/protobuf_objects.ts";
import { metadataOf } from "./slim.ts";
import { decodeWatch, WatchStreamError } from "./watch_stream.ts";

const BOOKMARK = message([[
  1,
  message([
    [6, "9"],
    [12, message([[1, "k8s.io/initial-events-end"], [2, "true"]])],
  ]),
]]);
const EXPIRED = message([
  [3, "too old"],
  [4, "Expired"],
  [5, message([[4, message([[1, "Cause"]])], [5, 3]])],
  [6, 410],
]);
const FIRST = protobufEvent("ADDED", envelope("Service", protobufService("a")));
const BYTES = concat([
  FIRST,
  protobufEvent("MODIFIED", envelope("Service", protobufService("wäb→🦕"))),
  protobufEvent("DELETED", envelope("Service", protobufService("a", { resourceVersion: "6" }))),
  protobufEvent("BOOKMARK", envelope("Service", BOOKMARK)),
  protobufEvent("ERROR", envelope("Status", EXPIRED)),
]);
const READ = [
  ["ADDED", { name: "a", namespace: "shop", resourceVersion: "5" }],
  ["MODIFIED", { name: "wäb→🦕", namespace: "shop", resourceVersion: "5" }],
  ["DELETED", { name: "a", namespace: "shop", resourceVersion: "6" }],
  ["BOOKMARK", { resourceVersion: "9", annotations: { "k8s.io/initial-events-end": "true" } }],
  ["ERROR", {
    message: "too old",
    reason: "Expired",
    details: { causes: [{ reason: "Cause" }], retryAfterSeconds: 3 },
    code: 410,
  }],
];

async function* cut(bytes: Uint8Array, size: number): AsyncGenerator<Uint8Array> {
  // One buffer for all chunks: a decoder that keeps a view instead of a copy fails.
  const buffer = new Uint8Array(size);
  for (let at = 0; at < bytes.length; at += size) {
    const part = bytes.subarray(at, at + size);
    buffer.set(part);
    yield buffer.subarray(0, part.length);
  }
}

async function collect(chunks: AsyncIterable<Uint8Array>, into: unknown[] = []) {
  for await (const events of decodeWatch(chunks, "Service")) {
    for (const { type, object } of events) {
      into.push([type, type === "ERROR" ? object : metadataOf(object)]);
    }
  }
  return into;
}

Deno.test("decodeWatch() in protobuf gives the same events however the bytes are cut", async () => {
  for (const size of [1, 2, 3, 7, 64, BYTES.length]) {
    assertEquals(await collect(cut(BYTES, size)), READ, `chunks of ${size} bytes`);
  }
});

for (
  const [name, garbage, reason] of [
    ["is cut short", FIRST.subarray(0, 20), "the connection ended within an event"],
    ["is cut in its length", FIRST.subarray(0, 2), "the connection ended within an event"],
    ["has a huge length", new Uint8Array(4).fill(0xff), "an event has 4294967295 bytes"],
    ["is JSON", new TextEncoder().encode('{"type":"ADDED"}\n'), "an event has"],
    ["is empty", new Uint8Array(4), "has no 'type'"],
    ["has an unknown type", protobufEvent("RENAMED", envelope("Service", EXPIRED)), "no 'type'"],
    ["has no envelope", protobufEvent("ADDED", protobufService("b")), "'k8s'"],
    ["holds another kind", protobufEvent("ADDED", envelope("Status", EXPIRED)), "kind 'Status'"],
    ["is no Status", protobufEvent("ERROR", envelope("Service", EXPIRED)), "not Status"],
    ["has a wrong length inside", damagedAt(5), "an event is not intact"],
  ] as const
) {
  Deno.test(`decodeWatch() in protobuf keeps the events before one that ${name}, then throws`, async () => {
    const events: unknown[] = [];
    const bytes = concat([FIRST, garbage]);
    const error = await assertRejects(() => collect(cut(bytes, 9), events), WatchStreamError);
    assertStringIncludes(error.message, reason);
    assertEquals(events, [READ[0]]);
  });
}

Deno.test("decodeWatch() in protobuf takes no more memory for an event than has arrived", async () => {
  const length = new Uint8Array([1, 0, 0, 0]);
  const before = Deno.memoryUsage().external;
  await assertRejects(() => collect(cut(concat([length, FIRST]), 64)), WatchStreamError);
  assert(Deno.memoryUsage().external - before < 2 ** 20);
});

/** The first event with a length that is too large. */
function damagedAt(at: number): Uint8Array {
  const bytes = FIRST.slice();
  bytes[at] = 0x7f;
  return bytes;
}
