import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { countBytes } from "../../tests/support/count_bytes.ts";
import { decodeWatch, type WatchEvent, WatchStreamError } from "./watch_stream.ts";

const EVENTS: readonly WatchEvent[] = [
  { type: "ADDED", object: { metadata: { name: "wäb→🦕" } } },
  { type: "MODIFIED", object: { text: 'a "quoted" \\ line\nbreak' } },
  { type: "DELETED", object: {} },
  { type: "BOOKMARK", object: { metadata: { resourceVersion: "7" } } },
  { type: "ERROR", object: { code: 410 } },
];
const BYTES = new TextEncoder().encode(
  EVENTS.map((event) => JSON.stringify(event) + "\n").join(""),
);

async function* cut(bytes: Uint8Array, size: number): AsyncGenerator<Uint8Array> {
  // One buffer for all chunks: a decoder that keeps a view instead of a copy fails.
  const buffer = new Uint8Array(size);
  for (let at = 0; at < bytes.length; at += size) {
    const part = bytes.subarray(at, at + size);
    buffer.set(part);
    yield buffer.subarray(0, part.length);
  }
}

/** 64 MiB without a line break. */
async function* spaces(size: number, sent: { bytes: number; left: boolean }) {
  const chunk = new Uint8Array(size).fill(0x20);
  try {
    for (; sent.bytes < 64 * 1024 * 1024; sent.bytes += size) yield chunk;
  } finally {
    sent.left = true;
  }
}

async function collect(chunks: AsyncIterable<Uint8Array>, into: WatchEvent[] = []) {
  for await (const events of decodeWatch(chunks)) for (const event of events) into.push(event);
  return into;
}

Deno.test("decodeWatch() gives the same events however the bytes are cut", async () => {
  for (const size of [1, 2, 3, 7, 64, BYTES.length]) {
    assertEquals(await collect(cut(BYTES, size)), [...EVENTS], `chunks of ${size} bytes`);
  }
});

Deno.test("decodeWatch() skips empty lines", async () => {
  const bytes = new TextEncoder().encode('\n\r\n{"type":"ADDED","object":{}}\r\n\n');
  assertEquals(await collect(cut(bytes, 5)), [{ type: "ADDED", object: {} }]);
});

for (
  const [name, garbage, message] of [
    ["is not JSON", "<html>502 Bad Gateway</html>\n", "'<html>502 Bad Gateway</html>' is not JSON"],
    ["is no event", '{"kind":"Status"}\n', "has no 'type'"],
    ["has an unknown type", '{"type":"RENAMED","object":{}}\n', "has no 'type'"],
    ["is null", "null\n", "has no 'type'"],
    ["is cut short", '{"type":"ADDED","obj', "the connection ended within the line"],
    ["is long", `${"x".repeat(500)}\n`, `'${"x".repeat(80)}…' is not JSON`],
  ] as const
) {
  Deno.test(`decodeWatch() keeps the events before a line that ${name}, then throws`, async () => {
    const bytes = new TextEncoder().encode(JSON.stringify(EVENTS[0]) + "\n" + garbage);
    const events: WatchEvent[] = [];
    const error = await assertRejects(() => collect(cut(bytes, 9), events), WatchStreamError);
    assertStringIncludes(error.message, message);
    assertEquals(events, [EVENTS[0]!]);
  });
}

Deno.test("decodeWatch() ends an endless line, and leaves the connection", async () => {
  for (const size of [100, 65_536]) {
    const sent = { bytes: 0, left: false };
    const error = await assertRejects(() => collect(spaces(size, sent)), WatchStreamError);
    assertStringIncludes(error.message, "a line has more than 18875392 bytes");
    assertEquals([sent.left, sent.bytes < 20 * 1024 * 1024], [true, true]);
  }
});

for (
  const [name, object] of [
    ["levels of nesting", `${"[".repeat(100_000)}${"]".repeat(100_000)}`],
    ["values", `[${"{},".repeat(1_000_000)}{}]`],
  ] as const
) {
  Deno.test(`decodeWatch() refuses an event with too many ${name}`, async () => {
    const bytes = new TextEncoder().encode(`{"type":"ADDED","object":${object}}\n`);
    const error = await assertRejects(() => collect(cut(bytes, 65_536)), WatchStreamError);
    assertStringIncludes(error.message, name);
  });
}

Deno.test("decodeWatch() handles each byte of a long line a few times at most", async () => {
  const text = `{"type":"ADDED","object":"${"a".repeat(200_000)}"}\n`;
  for (const size of [1, 7, 16_384]) {
    const bytes = new TextEncoder().encode(text);
    const counting = countBytes();
    assertEquals((await collect(cut(bytes, size))).length, 1);
    const handled = counting.stop();
    assert(handled <= 8 * text.length, `${handled} bytes of ${text.length}, cut by ${size}`);
  }
});

Deno.test("decodeWatch() ends the bytes when its reader leaves early", async () => {
  let ended = false;
  async function* endless(): AsyncGenerator<Uint8Array> {
    try {
      for (;;) yield BYTES;
    } finally {
      ended = true;
    }
  }
  for await (const events of decodeWatch(endless())) if ([...events].length > 0) break;
  assertEquals(ended, true);
});
