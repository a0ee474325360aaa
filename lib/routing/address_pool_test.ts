import { assertEquals } from "@std/assert";
import { tryParseAddressRange } from "../net/address_range.ts";
import { type Cidr, parseCidr } from "../net/cidr.ts";
import { addressAt, parseIpAddress } from "../net/ip_address.ts";
import { pool } from "../../tests/support/builders/routed_objects.ts";
import { poolOf, poolsWithout, poolUse } from "./address_pool.ts";

const POOLS = [
  pool("a", ["192.0.2.0/30", "192.0.2.8", "2001:db8::/64"]),
  pool("b", ["198.51.100.1-198.51.100.3"]),
];

Deno.test("poolOf() finds the pool of an address", () => {
  const name = (text: string) => poolOf(POOLS, parseIpAddress(text))?.name;
  assertEquals(name("192.0.2.3"), "a");
  assertEquals(name("192.0.2.4"), undefined);
  assertEquals(name("198.51.100.3"), "b");
  assertEquals(name("2001:db8::5"), "a");
  // The same number in the other family.
  assertEquals(name("::c000:203"), undefined);
});

Deno.test("poolUse() counts the addresses of each pool and family", () => {
  const addresses = ["192.0.2.1", "192.0.2.8", "2001:db8::1", "203.0.113.1"].map(parseIpAddress);
  const found = poolUse(POOLS, new Set(addresses))
    .map(({ pool, family, size, used }) => `${pool.name} ${family} ${used}/${size}`);
  assertEquals(found, ["a IPv4 2/5", "a IPv6 1/18446744073709551616", "b IPv4 0/3"]);
});

Deno.test("poolsWithout() takes ranges out that have another use, and reports them", () => {
  const { pools, problems } = poolsWithout(
    POOLS,
    new Map([
      [parseCidr("192.0.2.1/32"), "the range of cluster IPs"],
      [parseCidr("198.51.100.0/24"), "the range of pods"],
      [parseCidr("10.0.0.0/8"), "the range of pods"],
    ]),
  );
  const texts = pools.map(({ name, ranges }) =>
    [
      name,
      ...ranges.map(({ family, first, last }) =>
        [first, last].map((end) => addressAt(end, family)).join("-")
      ),
    ].join(" ")
  );
  assertEquals(texts, [
    "a 192.0.2.0-192.0.2.0 192.0.2.2-192.0.2.3 192.0.2.8-192.0.2.8 2001:db8::-2001:db8::ffff:ffff:ffff:ffff",
    "b",
  ]);
  assertEquals(problems, [
    "Pool 'a' has addresses of 192.0.2.1/32, the range of cluster IPs; they are not assigned",
    "Pool 'b' has addresses of 198.51.100.0/24, the range of pods; they are not assigned",
  ]);
});

Deno.test("poolsWithout() looks at few of the ranges for each one that it takes out", () => {
  const COUNT = 4_096;
  let looks = 0;
  const ranges = Array.from({ length: COUNT }, (_, index) => {
    const { family, first, last } = tryParseAddressRange("10.0.0.0-10.0.0.9")!;
    const offset = 512n * BigInt(index);
    return {
      family,
      get first() {
        looks++;
        return first + offset;
      },
      get last() {
        looks++;
        return last + offset;
      },
    };
  });
  const taken = ranges.map(({ first }) => [`${addressAt(first, "IPv4")}/30` as Cidr, "x"] as const);
  looks = 0;

  const { pools, problems } = poolsWithout([{ ...POOLS[0]!, ranges }], new Map(taken));

  assertEquals([pools[0]!.ranges.length, problems.length], [COUNT, COUNT]);
  assertEquals(looks < 16 * COUNT * Math.log2(COUNT), true, `${looks} looks`);
});
