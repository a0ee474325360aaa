import { assertEquals, assertRejects } from "@std/assert";
import { PassThrough } from "node:stream";
import { chunksOf } from "./http2_wire.ts";

Deno.test("chunksOf() pauses the stream while much is unread, in small chunks too, and lets it continue", async () => {
  for (const [size, most] of [[1, 512], [65_536, 4]] as const) {
    const stream = new PassThrough();
    const chunks = chunksOf(stream);
    let count = 0;
    for (; !stream.isPaused() && count < 10_000; count++) stream.emit("data", new Uint8Array(size));
    assertEquals(count, most);
    for (let read = 0; read <= most / 2; read++) await chunks.next();
    assertEquals(stream.isPaused(), false);
    stream.destroy();
  }
});

Deno.test("chunksOf() throws after the last chunk when the stream failed, or was closed without an end", async () => {
  for (const error of [new Error("broken"), undefined]) {
    const stream = new PassThrough();
    const chunks = chunksOf(stream);
    stream.emit("data", new Uint8Array(5));
    stream.destroy(error);
    assertEquals((await chunks.next()).value?.length, 5);
    await assertRejects(() => chunks.next(), Error, error ? "broken" : "closed before its end");
  }
});
