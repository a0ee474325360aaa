import { assertEquals, assertRejects } from "@std/assert";
import { PassThrough } from "node:stream";
import { StreamChunks } from "./stream_chunks.ts";

const CHUNK = new Uint8Array(64 * 1024);

async function lengthsOf(chunks: AsyncIterable<Uint8Array>): Promise<number[]> {
  return (await Array.fromAsync(chunks)).map((chunk) => chunk.length);
}

Deno.test("StreamChunks gives everything to a reader that comes after the stream was closed", async () => {
  const stream = new PassThrough();
  const chunks = new StreamChunks(stream);
  const closed = new Promise((resolve) => stream.once("close", resolve));
  stream.write(new Uint8Array(3));
  stream.end(new Uint8Array(4));
  await closed;
  assertEquals(await lengthsOf(chunks), [3, 4]);
});

Deno.test("StreamChunks gives an end that is followed by the close no error", async () => {
  const stream = new PassThrough();
  const chunks = new StreamChunks(stream);
  stream.emit("data", new Uint8Array(1));
  stream.emit("end");
  stream.emit("close");
  assertEquals(await lengthsOf(chunks), [1]);
});

Deno.test("StreamChunks throws after the last chunk when the stream was closed without an end", async () => {
  const stream = new PassThrough();
  const chunks = new StreamChunks(stream)[Symbol.asyncIterator]();
  stream.write(new Uint8Array(5));
  assertEquals((await chunks.next()).value?.length, 5);
  stream.destroy();
  await assertRejects(() => chunks.next(), Error, "closed before its end");
});

Deno.test("StreamChunks throws the stream's own error", async () => {
  const stream = new PassThrough();
  const chunks = new StreamChunks(stream);
  stream.destroy(new Error("broken"));
  await assertRejects(() => lengthsOf(chunks), Error, "broken");
});

Deno.test("StreamChunks pauses the stream while many small chunks are unread", () => {
  const stream = new PassThrough();
  const _chunks = new StreamChunks(stream);
  let count = 0;
  for (; !stream.isPaused() && count < 10_000; count++) stream.emit("data", new Uint8Array(1));
  assertEquals(count, 512);
  stream.destroy();
});

Deno.test("StreamChunks pauses the stream while much is unread, and lets it continue", async () => {
  const stream = new PassThrough();
  const chunks = new StreamChunks(stream)[Symbol.asyncIterator]();
  for (let i = 0; i < 4; i++) stream.emit("data", CHUNK);
  assertEquals(stream.isPaused(), true);
  for (let i = 0; i < 3; i++) await chunks.next();
  assertEquals(stream.isPaused(), false);
  stream.destroy();
});
