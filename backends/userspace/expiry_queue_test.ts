import { assertEquals } from "@std/assert";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import { ExpiryQueue } from "./expiry_queue.ts";
import type { RecencyItem } from "./recency_list.ts";

interface Item extends RecencyItem<Item> {
  readonly name: string;
}

function item(name: string): Item {
  return { name, older: undefined, newer: undefined, usedAt: 0 };
}

function queueOf(clock: FakeClock): { queue: ExpiryQueue<Item>; expired: string[] } {
  const expired: string[] = [];
  const onExpired = ({ name }: Item) => void expired.push(`${name}@${clock.now()}`);
  return { queue: new ExpiryQueue(clock, { ttlMs: 1000, onExpired }), expired };
}

Deno.test("ExpiryQueue expires an item that went unused, within 10 ms", async () => {
  const clock = new FakeClock();
  const { queue, expired } = queueOf(clock);
  queue.add(item("a"), clock.now());
  await clock.advance(500);
  queue.add(item("b"), clock.now());
  await clock.advance(5000);
  assertEquals(expired, ["a@1010", "b@1510"]);
  assertEquals(clock.pendingTimers, 0);
});

Deno.test("ExpiryQueue expires several items in one go", async () => {
  const clock = new FakeClock();
  const { queue, expired } = queueOf(clock);
  for (const name of "abc") {
    queue.add(item(name), clock.now());
    await clock.advance(5);
  }
  await clock.advance(5000);
  assertEquals(expired, ["a@1010", "b@1010", "c@1010"]);
});

Deno.test("ExpiryQueue.touch() restarts the time", async () => {
  const clock = new FakeClock();
  const { queue, expired } = queueOf(clock);
  const a = item("a");
  queue.add(a, clock.now());
  await clock.advance(900);
  queue.touch(a, clock.now());
  await clock.advance(1000);
  assertEquals(expired, []);
  await clock.advance(10);
  assertEquals(expired, ["a@1910"]);
});

Deno.test("ExpiryQueue.delete() keeps an item from expiring", async () => {
  const clock = new FakeClock();
  const { queue, expired } = queueOf(clock);
  const a = item("a");
  queue.add(a, clock.now());
  queue.delete(a);
  await clock.advance(5000);
  assertEquals(expired, []);
  assertEquals(clock.pendingTimers, 0);
});

Deno.test("ExpiryQueue keeps one timer for all items, and none after close()", () => {
  const clock = new FakeClock();
  const { queue } = queueOf(clock);
  for (const name of "abc") queue.add(item(name), clock.now());
  assertEquals(clock.pendingTimers, 1);
  queue.close();
  assertEquals(clock.pendingTimers, 0);
});

Deno.test("ExpiryQueue accepts an item that is added while another expires", async () => {
  const clock = new FakeClock();
  const expired: number[] = [];
  const queue = new ExpiryQueue<Item>(clock, {
    ttlMs: 100,
    onExpired(each) {
      expired.push(clock.now());
      if (expired.length < 3) queue.add(each, clock.now());
    },
  });
  queue.add(item("a"), clock.now());
  await clock.advance(1000);
  assertEquals(expired, [110, 220, 330]);
  assertEquals(clock.pendingTimers, 0);
});

Deno.test("ExpiryQueue spreads a crowd over several turns", async () => {
  const clock = new FakeClock();
  const { queue, expired } = queueOf(clock);
  for (let count = 0; count < 300; count++) queue.add(item(`${count}`), clock.now());
  await clock.advance(1010);
  assertEquals(expired.length, 256);
  await clock.advance(10);
  assertEquals(expired.length, 300);
});
