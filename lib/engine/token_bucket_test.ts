import { assertEquals, assertThrows } from "@std/assert";
import { TokenBucket } from "./token_bucket.ts";

Deno.test("TokenBucket starts full and gives its burst at once", () => {
  const bucket = new TokenBucket({ periodMs: 1000, burst: 2 });
  assertEquals(bucket.waitMs(0), 0);
  bucket.take(0);
  bucket.runEnded(0);
  bucket.take(0);
  bucket.runEnded(0);
  assertEquals(bucket.waitMs(0), 1000);
  assertEquals(bucket.waitMs(400), 600);
});

Deno.test("TokenBucket counts no credit while a run is in flight", () => {
  const bucket = new TokenBucket({ periodMs: 1000, burst: 1 });
  bucket.take(0);
  assertEquals(bucket.waitMs(5000), 1000);
  bucket.runEnded(5000);
  assertEquals(bucket.waitMs(5999), 1);
  assertEquals(bucket.waitMs(6000), 0);
});

Deno.test("TokenBucket never holds more than its burst", () => {
  const bucket = new TokenBucket({ periodMs: 1000, burst: 2 });
  for (let i = 0; i < 2; i++) {
    bucket.take(60_000);
    bucket.runEnded(60_000);
  }
  assertEquals(bucket.waitMs(60_000), 1000);
});

Deno.test("TokenBucket without a period never waits", () => {
  const bucket = new TokenBucket({ periodMs: 0, burst: 1 });
  for (let i = 0; i < 3; i++) {
    bucket.take(0);
    bucket.runEnded(0);
  }
  assertEquals(bucket.waitMs(0), 0);
});

Deno.test("TokenBucket refuses a token that it does not have, and impossible options", () => {
  const bucket = new TokenBucket({ periodMs: 1000, burst: 1 });
  bucket.take(0);
  bucket.runEnded(0);
  assertThrows(() => bucket.take(500), RangeError, "none for 500 ms");
  assertThrows(() => new TokenBucket({ periodMs: -1, burst: 1 }), RangeError, "period '-1'");
  assertThrows(() => new TokenBucket({ periodMs: 1, burst: 0 }), RangeError, "burst '0'");
});
