import { assertEquals } from "@std/assert";
import fc from "fast-check";
import { type Cidr, cidrContains, parseCidr } from "./cidr.ts";
import { type IpFamily, parseIpAddress } from "./ip_address.ts";
import { atOnce } from "./steps.ts";
import { BlockMatcher, type BlockWithExceptions, nestBlocks, rangesOf } from "./nested_blocks.ts";

type TestBlock = readonly [cidr: string, ...except: string[]];

/**
 * Blocks, what nests of them (`!` = not in the set), and the ranges. An exception counts for its own entry
 * only, and another entry may allow a part of it again.
 */
const CASES = `
- | - | -
0.0.0.0/0 | 0.0.0.0/0 | 0.0.0.0/0
::/0 | ::/0 | ::/0
10.0.0.7/32 | 10.0.0.7/32 | 10.0.0.7
10.0.0.0/8 except 10.128.0.0/9 | 10.0.0.0/8, !10.128.0.0/9 | 10.0.0.0/9
0.0.0.0/0 except 255.255.255.255/32 0.0.0.0/1 | 0.0.0.0/0, !0.0.0.0/1, !255.255.255.255/32 | 128.0.0.0-255.255.255.254
10.0.0.0/8 except 10.1.0.0/16, 10.1.0.0/16 except 10.1.1.0/24 | 10.0.0.0/8, !10.1.1.0/24 | 10.0.0.0-10.1.0.255, 10.1.2.0-10.255.255.255
10.0.0.0/8 except 10.1.0.0/16, 10.1.7.0/24 | 10.0.0.0/8, !10.1.0.0/16, 10.1.7.0/24 | 10.0.0.0/16, 10.1.7.0/24, 10.2.0.0-10.255.255.255
10.0.0.0/24 except 10.0.0.0/24 | - | -
10.0.0.0/24 except 10.0.0.0/8 | - | -
10.0.0.0/24 except fd00::/8 | 10.0.0.0/24 | 10.0.0.0/24
10.0.0.128/25, 10.0.0.0/25 | 10.0.0.0/25, 10.0.0.128/25 | 10.0.0.0/24
fd00::/126 except fd00::1/128 | fd00::/126, !fd00::1/128 | fd00::, fd00::2/127
::/0 except fd00::5/128 | ::/0, !fd00::5/128 | ::-fd00::4, fd00::6-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff
`.trim().split("\n").map((line) =>
  line.split(" | ").map((cell) => cell === "-" ? [] : cell.split(", "))
);

function nest(blocks: readonly BlockWithExceptions[]) {
  return atOnce(nestBlocks(blocks));
}

function parsed(blocks: readonly TestBlock[]): readonly BlockWithExceptions[] {
  return blocks.map(([cidr, ...except]) => ({
    cidr: parseCidr(cidr),
    except: except.map(parseCidr),
  }));
}

for (const [texts = [], nested = [], ranges = []] of CASES) {
  Deno.test(`nestBlocks() and rangesOf() of ${texts}`, () => {
    const found = nest(parsed(texts.map((text) => text.split(/ except | /) as [string])));
    assertEquals([...found].map(([cidr, isIn]) => isIn ? cidr : `!${cidr}`), nested);
    assertEquals<readonly string[]>([...rangesOf(found)], ranges);
  });
}

Deno.test("128 exceptions of one IPv6 address make 128 blocks and 129 ranges", () => {
  const except = Array.from({ length: 128 }, (_, index) => `2001:db8:${index}::1/128`);
  const found = nest(parsed([["::/0", ...except]]));
  assertEquals([found.size, [...rangesOf(found)].length], [129, 129]);
});

/** Every block of 16 addresses that overlap each other in all ways. */
function blocksOfSixteen(family: IpFamily): readonly Cidr[] {
  return [0, 1, 2, 3, 4].flatMap((bits) =>
    Array.from({ length: 2 ** bits }, (_, index) => {
      const host = (index * 2 ** (4 - bits)).toString(family === "IPv4" ? 10 : 16);
      return parseCidr(
        family === "IPv4" ? `10.0.0.${host}/${28 + bits}` : `fd00::${host}/${124 + bits}`,
      );
    })
  );
}

function addresses(family: IpFamily) {
  return Array.from(
    { length: 18 },
    (_, host) =>
      parseIpAddress(family === "IPv4" ? `10.0.0.${host}` : `fd00::${host.toString(16)}`),
  );
}

for (const family of ["IPv4", "IPv6"] as const) {
  const cidr = fc.constantFrom(...blocksOfSixteen(family));
  const entry = fc.record({ cidr, except: fc.array(cidr, { maxLength: 5 }) });
  const entries = fc.array(entry, { maxLength: 5 });
  const isIn = (
    blocks: readonly BlockWithExceptions[],
    address: ReturnType<typeof parseIpAddress>,
  ) =>
    blocks.some(({ cidr, except }) =>
      cidrContains(cidr, address) && !except.some((each) => cidrContains(each, address))
    );

  Deno.test(`BlockMatcher has the addresses of any overlapping blocks of ${family}, and no others`, () => {
    fc.assert(fc.property(entries, entries, (blocks, others) => {
      const matcher = BlockMatcher.of(nest(blocks));
      const other = BlockMatcher.of(nest(others));
      const held = addresses(family).map((address) => isIn(blocks, address));
      assertEquals(addresses(family).map((address) => matcher.contains(address)), held);
      const isWithin = addresses(family).every((address) =>
        !isIn(others, address) || isIn(blocks, address)
      );
      assertEquals(matcher.containsAll(other), isWithin);
    }));
  });

  Deno.test(`rangesOf() makes disjoint ranges with gaps of any overlapping blocks of ${family}`, () => {
    fc.assert(fc.property(entries, (blocks) => {
      const nested = nest(blocks);
      const size = blocks.reduce((sum, { except }) => sum + 1 + except.length, 0);
      assertEquals(nested.size <= size, true);
      const all = addresses(family);
      const texts = all.map((address) => isIn(blocks, address) ? address : "-").join(" ");
      const runs = texts.split(/(?: ?- ?)+/).filter((run) => run !== "");
      const ends = [...rangesOf(nested)].map((range) => {
        const matching = all.filter((address) =>
          range.includes("/")
            ? cidrContains(range as Cidr, address)
            : range.includes("-")
            ? all.indexOf(parseIpAddress(range.split("-")[0]!)) <= all.indexOf(address) &&
              all.indexOf(address) <= all.indexOf(parseIpAddress(range.split("-")[1]!))
            : range === address
        );
        return matching.join(" ");
      });
      assertEquals(ends, runs);
    }));
  });
}

Deno.test("rangesOf() writes addresses as they are written everywhere", () => {
  const networks = [
    "::",
    "1::",
    "::1:0:0:0",
    "1:0:0:2::",
    "1:0:0:2::3",
    "fd00::1:0:0:1",
    "a:b:c:d:e:f:1:2",
  ];
  for (const network of networks) {
    assertEquals([...rangesOf(nest(parsed([[`${network}/128`]])))], [network]);
  }
});
