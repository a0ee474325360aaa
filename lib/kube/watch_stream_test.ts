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

const TYPED_ARRAY = Object.getPrototypeOf(Uint8Array.prototype);

/** Counts the bytes that are copied between arrays and decoded to text, until it is stopped. */
function countBytes(): { stop(): number } {
  const { slice, set } = TYPED_ARRAY;
  const { decode } = TextDecoder.prototype;
  let bytes = 0;
  TYPED_ARRAY.slice = function (this: Uint8Array, ...range: [number?, number?]) {
    const copy = slice.apply(this, range);
    bytes += copy.length;
    return copy;
  };
  TYPED_ARRAY.set = function (this: Uint8Array, source: ArrayLike<number>, offset?: number) {
    bytes += source.length;
    return set.call(this, source, offset);
  };
  TextDecoder.prototype.decode = function (input, options) {
    bytes += input?.byteLength ?? 0;
    return decode.call(this, input, options);
  };
  return {
    stop() {
      Object.assign(TYPED_ARRAY, { slice, set });
      TextDecoder.prototype.decode = decode;
      return bytes;
    },
  };
}

const encode = (text: string) => new TextEncoder().encode(text);
const line = (event: unknown) => encode(`${JSON.stringify(event)}\n`);

const JSON_EVENTS = [
  { type: "ADDED", object: { metadata: { name: "wäb→🦕" } } },
  { type: "MODIFIED", object: { metadata: { name: 'a "quoted" \\ line\nbreak' } } },
  { type: "DELETED", object: { metadata: {} } },
  { type: "BOOKMARK", object: { metadata: { resourceVersion: "7" } } },
  { type: "ERROR", object: { code: 410 } },
];
const EXPIRED = message([
  [3, "too old"],
  [4, "Expired"],
  [5, message([[4, message([[1, "Cause"]])], [5, 3]])],
  [6, 410],
]);
const END = message([[1, "k8s.io/initial-events-end"], [2, "true"]]);
const FIRST = protobufEvent("ADDED", envelope("Service", protobufService("a")));

/** A watch in each encoding: the bytes, the events that they give, and the bytes of the first one. */
const WATCHES = {
  JSON: {
    kind: undefined,
    bytes: concat(JSON_EVENTS.map(line)),
    first: line(JSON_EVENTS[0]),
    read: JSON_EVENTS.map(({ type, object }) => [type, object.metadata ?? object]),
  },
  protobuf: {
    kind: "Service",
    bytes: concat([
      FIRST,
      protobufEvent("MODIFIED", envelope("Service", protobufService("wäb→🦕"))),
      protobufEvent("DELETED", envelope("Service", protobufService("a", { resourceVersion: "6" }))),
      protobufEvent(
        "BOOKMARK",
        envelope("Service", message([[1, message([[6, "9"], [12, END]])]])),
      ),
      protobufEvent("ERROR", envelope("Status", EXPIRED)),
    ]),
    first: FIRST,
    read: [
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
    ],
  },
} as const;

async function* cut(bytes: Uint8Array, size: number): AsyncGenerator<Uint8Array> {
  // One buffer for all chunks: a decoder that keeps a view instead of a copy fails.
  const buffer = new Uint8Array(size);
  for (let at = 0; at < bytes.length; at += size) {
    const part = bytes.subarray(at, at + size);
    buffer.set(part);
    yield buffer.subarray(0, part.length);
  }
}

async function collect(
  chunks: AsyncIterable<Uint8Array>,
  kind: string | undefined,
  into: unknown[] = [],
) {
  for await (const events of decodeWatch(chunks, kind)) {
    for (const { type, object } of events) {
      into.push([type, type === "ERROR" ? object : metadataOf(object)]);
    }
  }
  return into;
}

for (const [encoding, { kind, bytes, read }] of Object.entries(WATCHES)) {
  Deno.test(`decodeWatch() gives the same events in ${encoding} however the bytes are cut`, async () => {
    for (const size of [1, 2, 3, 7, 64, bytes.length]) {
      assertEquals<unknown>(await collect(cut(bytes, size), kind), read, `chunks of ${size} bytes`);
    }
  });
}

Deno.test("decodeWatch() skips empty lines", async () => {
  const bytes = encode('\n\r\n{"type":"ADDED","object":{"metadata":{}}}\r\n\n');
  assertEquals(await collect(cut(bytes, 5), undefined), [["ADDED", {}]]);
});

/** The first event with a length that is too large. */
const damaged = FIRST.slice();
damaged[5] = 0x7f;

const DEEP = `${"[".repeat(100_000)}${"]".repeat(100_000)}`;
const LARGE = `[${"{},".repeat(1_000_000)}{}]`;

const GARBAGE: readonly (readonly [keyof typeof WATCHES, string, Uint8Array, string])[] = [
  ["JSON", "is no JSON", encode("<html>502</html>\n"), "'<html>502</html>' is not JSON"],
  ["JSON", "is no event", encode('{"kind":"Status"}\n'), "has no 'type'"],
  ["JSON", "has an unknown type", encode('{"type":"RENAMED","object":{}}\n'), "has no 'type'"],
  ["JSON", "is null", encode("null\n"), "has no 'type'"],
  ["JSON", "is cut short", encode('{"type":"ADDED","obj'), "the connection ended within the line"],
  ["JSON", "is long", encode(`${"x".repeat(500)}\n`), `'${"x".repeat(80)}…' is not JSON`],
  ["JSON", "is deep", encode(`{"type":"ADDED","object":${DEEP}}\n`), "levels of nesting"],
  ["JSON", "is large", encode(`{"type":"ADDED","object":${LARGE}}\n`), "values"],
  ["protobuf", "is cut short", FIRST.subarray(0, 20), "the connection ended within an event"],
  ["protobuf", "is cut in its length", FIRST.subarray(0, 2), "ended within an event"],
  ["protobuf", "has a huge length", new Uint8Array(4).fill(0xff), "an event has 4294967295 bytes"],
  ["protobuf", "is JSON", encode('{"type":"ADDED"}\n'), "an event has"],
  ["protobuf", "is empty", new Uint8Array(4), "has no 'type'"],
  [
    "protobuf",
    "has an unknown type",
    protobufEvent("RENAMED", envelope("Service", EXPIRED)),
    "no 'type'",
  ],
  ["protobuf", "has no envelope", protobufEvent("ADDED", protobufService("b")), "'k8s'"],
  [
    "protobuf",
    "holds another kind",
    protobufEvent("ADDED", envelope("Status", EXPIRED)),
    "kind 'Status'",
  ],
  [
    "protobuf",
    "is no Status",
    protobufEvent("ERROR", envelope("Service", EXPIRED)),
    "not Status",
  ],
  ["protobuf", "has a wrong length inside", damaged, "an event is not intact"],
];

for (const [encoding, name, garbage, reason] of GARBAGE) {
  Deno.test(`decodeWatch() keeps the events in ${encoding} before one that ${name}, then throws`, async () => {
    const { kind, first, read } = WATCHES[encoding];
    const size = garbage.length > 1000 ? 65_536 : 9;
    const events: unknown[] = [];
    const reading = collect(cut(concat([first, garbage]), size), kind, events);
    const error = await assertRejects(() => reading, WatchStreamError);
    assertStringIncludes(error.message, reason);
    assertEquals<unknown>(events, [read[0]]);
  });
}

Deno.test("decodeWatch() ends an endless line, and leaves the connection", async () => {
  for (const size of [100, 65_536]) {
    const sent = { bytes: 0, left: false };
    const spaces = async function* () {
      const chunk = new Uint8Array(size).fill(0x20);
      try {
        for (; sent.bytes < 64 * 1024 * 1024; sent.bytes += size) yield chunk;
      } finally {
        sent.left = true;
      }
    };
    const error = await assertRejects(() => collect(spaces(), undefined), WatchStreamError);
    assertStringIncludes(error.message, "a line has more than 18875392 bytes");
    assertEquals([sent.left, sent.bytes < 20 * 1024 * 1024], [true, true]);
  }
});

Deno.test("decodeWatch() handles each byte of a long line a few times at most", async () => {
  const text = encode(`{"type":"ADDED","object":"${"a".repeat(200_000)}"}\n`);
  for (const size of [1, 7, 16_384]) {
    const counting = countBytes();
    assertEquals((await collect(cut(text, size), undefined)).length, 1);
    const handled = counting.stop();
    assert(handled <= 8 * text.length, `${handled} bytes of ${text.length}, cut by ${size}`);
  }
});

Deno.test("decodeWatch() in protobuf takes no more memory for an event than has arrived", async () => {
  const length = new Uint8Array([1, 0, 0, 0]);
  const before = Deno.memoryUsage().external;
  await assertRejects(() => collect(cut(concat([length, FIRST]), 64), "Service"), WatchStreamError);
  assert(Deno.memoryUsage().external - before < 2 ** 20);
});

Deno.test("decodeWatch() ends the bytes when its reader leaves early", async () => {
  let ended = false;
  async function* endless(): AsyncGenerator<Uint8Array> {
    try {
      for (;;) yield WATCHES.JSON.bytes;
    } finally {
      ended = true;
    }
  }
  for await (const events of decodeWatch(endless())) if ([...events].length > 0) break;
  assertEquals(ended, true);
});
