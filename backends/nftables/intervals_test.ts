import { assertEquals } from "@std/assert";
import { cidrsOfBounds, type IntervalBound, rangeText } from "./intervals.ts";

const bound = (address: bigint, isEnd = false): IntervalBound => ({ address, isEnd });

Deno.test("rangeText() is an address, a CIDR where it is one, or both ends", () => {
  const text = (first: bigint, last: bigint) => rangeText([first, last], "IPv4");
  assertEquals(text(0x01020304n, 0x01020304n), "1.2.3.4");
  assertEquals(text(0x0a000000n, 0x0affffffn), "10.0.0.0/8");
  assertEquals(text(0n, 0xffffffffn), "0.0.0.0/0");
  assertEquals(text(0x0a000001n, 0x0a000002n), "10.0.0.1-10.0.0.2");
  assertEquals(text(0x0a000000n, 0x0a000002n), "10.0.0.0-10.0.0.2");
  const net = 0xfd00_0172n << 96n;
  assertEquals(rangeText([net, net + 0xffffn], "IPv6"), "fd00:172::/112");
  assertEquals(rangeText([net + 1n, net + 1n], "IPv6"), "fd00:172::1");
});

Deno.test("cidrsOfBounds() pairs each beginning with the next end", () => {
  const found = (...bounds: readonly IntervalBound[]) => cidrsOfBounds(bounds, "IPv4");
  // The kernel ends what is before the first interval, too, and lists in any order.
  assertEquals(found(bound(0xac1f0000n, true), bound(0xac1e0000n), bound(0n, true)), [
    "172.30.0.0/16",
  ]);
  // One ends where the next begins.
  assertEquals(
    found(
      ...[bound(0x0a000000n), bound(0x0a000100n, true)],
      ...[bound(0x0a000100n), bound(0x0a000300n, true)],
    ),
    ["10.0.0.0/24", "10.0.1.0-10.0.2.255"],
  );
  // Nothing is after the last address.
  assertEquals(found(bound(0xff000000n)), ["255.0.0.0/8"]);
  assertEquals(found(bound(0n)), ["0.0.0.0/0"]);
  assertEquals(found(bound(0n, true)), []);
});
