import { assertEquals, assertRejects } from "@std/assert";
import { PassThrough } from "node:stream";
import { chunksOf } from "./http2_wire.ts";

const CHUNK = new Uint8Array(64 * 1024);

async function lengthsOf(chunks: AsyncIterable<Uint8Array>): Promise<number[]> {
  return (await Array.fromAsync(chunks)).map((chunk) => chunk.length);
}

Deno.test("chunksOf() gives everything to a reader that comes after the stream was closed", async () => {
  const stream = new PassThrough();
  const chunks = chunksOf(stream);
  const closed = new Promise((resolve) => stream.once("close", resolve));
  stream.write(new Uint8Array(3));
  stream.end(new Uint8Array(4));
  await closed;
  assertEquals(await lengthsOf(chunks), [3, 4]);
});

Deno.test("chunksOf() gives an end that is followed by the close no error", async () => {
  const stream = new PassThrough();
  const chunks = chunksOf(stream);
  stream.emit("data", new Uint8Array(1));
  stream.emit("end");
  stream.emit("close");
  assertEquals(await lengthsOf(chunks), [1]);
});

Deno.test("chunksOf() throws after the last chunk when the stream was closed without an end", async () => {
  const stream = new PassThrough();
  const chunks = chunksOf(stream);
  stream.write(new Uint8Array(5));
  assertEquals((await chunks.next()).value?.length, 5);
  stream.destroy();
  await assertRejects(() => chunks.next(), Error, "closed before its end");
});

Deno.test("chunksOf() throws the stream's own error", async () => {
  const stream = new PassThrough();
  const chunks = chunksOf(stream);
  stream.destroy(new Error("broken"));
  await assertRejects(() => lengthsOf(chunks), Error, "broken");
});

Deno.test("chunksOf() pauses the stream while many small chunks are unread", () => {
  const stream = new PassThrough();
  const _chunks = chunksOf(stream);
  let count = 0;
  for (; !stream.isPaused() && count < 10_000; count++) stream.emit("data", new Uint8Array(1));
  assertEquals(count, 512);
  stream.destroy();
});

Deno.test("chunksOf() pauses the stream while much is unread, and lets it continue", async () => {
  const stream = new PassThrough();
  const chunks = chunksOf(stream);
  for (let i = 0; i < 4; i++) stream.emit("data", CHUNK);
  assertEquals(stream.isPaused(), true);
  for (let i = 0; i < 3; i++) await chunks.next();
  assertEquals(stream.isPaused(), false);
  stream.destroy();
});
