import { assertEquals, assertNotEquals, assertStrictEquals } from "@std/assert";
import { BufferPool, DATAGRAM_BYTES, DatagramBufferPool } from "./buffer_pool.ts";

Deno.test("BufferPool.take() gives back what was given", () => {
  const pool = new BufferPool({ size: 10, keep: 1 });
  const [first, second] = [pool.take(), pool.take()];
  assertEquals([first.length, second.length], [10, 10]);
  pool.give(first);
  assertStrictEquals(pool.take(), first);
});

Deno.test("BufferPool keeps no more buffers than it may", () => {
  const pool = new BufferPool({ size: 10, keep: 1 });
  const [first, second] = [pool.take(), pool.take()];
  pool.give(first);
  pool.give(second);
  const again = [pool.take(), pool.take()];
  assertEquals(again.includes(first), true);
  assertEquals(again.includes(second), false);
});

Deno.test("DatagramBufferPool.take() cuts blocks into buffers that do not overlap", () => {
  const pool = new DatagramBufferPool(2);
  const [a, b, c] = [pool.take(), pool.take(), pool.take()];
  assertEquals([a.length, b.length, c.length], Array(3).fill(DATAGRAM_BYTES));
  assertStrictEquals(a.buffer, b.buffer);
  assertNotEquals(a.byteOffset, b.byteOffset);
  assertEquals(c.buffer === a.buffer, false);
});

Deno.test("DatagramBufferPool.take() gives the last given first", () => {
  const pool = new DatagramBufferPool(4);
  const [a, b] = [pool.take(), pool.take()];
  pool.give(a);
  pool.give(b);
  assertStrictEquals(pool.take(), b);
  assertStrictEquals(pool.take(), a);
});

Deno.test("DatagramBufferPool costs no memory before it is used", () => {
  const before = Deno.memoryUsage().rss;
  const pool = new DatagramBufferPool();
  const buffers = Array.from({ length: 2000 }, () => pool.take());
  const grown = Deno.memoryUsage().rss - before;
  assertEquals(buffers.length, 2000);
  assertEquals(grown < 32 * 1024 * 1024, true, `grew by ${grown} bytes`);
});
