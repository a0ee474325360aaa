import { assertEquals } from "@std/assert";
import fc from "fast-check";
import { rangeOf } from "./address_range.ts";
import { type Cidr, cidrContains, cidrFamilyOf, parseCidr } from "./cidr.ts";
import { CidrCover } from "./cidr_cover.ts";
import { addressNumber, type IpAddress, ipFamilyOf, parseIpAddress } from "./ip_address.ts";

Deno.test("CidrCover keeps the outermost blocks of each family, in their order", () => {
  const cases: readonly (readonly [given: readonly string[], outermost: readonly string[]])[] = [
    [[], []],
    [["10.1.0.0/16", "11.0.0.0/16", "10.0.0.0/8", "10.0.0.0/8"], ["11.0.0.0/16", "10.0.0.0/8"]],
    [["fd00::1/128", "0.0.0.0/0", "192.0.2.1/32", "fd00::/8"], ["0.0.0.0/0", "fd00::/8"]],
    [["10.0.0.0/9", "10.128.0.0/9"], ["10.0.0.0/9", "10.128.0.0/9"]],
    [["::/0", "::1/128", "1.0.0.0/8"], ["::/0", "1.0.0.0/8"]],
  ];
  for (const [given, outermost] of cases) {
    assertEquals(new CidrCover(given.map(parseCidr)).outermost, outermost.map(parseCidr));
  }
});

/** Whether an address is within the ends of a block. */
function isWithin(cidr: Cidr, address: IpAddress): boolean {
  const { first, last } = rangeOf(cidr);
  const number = addressNumber(address);
  return cidrFamilyOf(cidr) === ipFamilyOf(address) && first <= number && number <= last;
}

const part = fc.nat({ max: 3 });
const ipv4 = fc.array(part, { minLength: 4, maxLength: 4 }).map((octets) => octets.join("."));
const ipv6 = fc.tuple(part, part).map(([first, last]) => `${first}:${last}::`);
const address = fc.oneof(ipv4, ipv6).map(parseIpAddress);
const block = fc.oneof(
  fc.tuple(ipv4, fc.nat({ max: 32 })),
  fc.tuple(ipv6, fc.oneof(fc.nat({ max: 32 }), fc.constant(128))),
).map(([text, length]) => parseCidr(`${text}/${length}`));

Deno.test("cidrContains() and CidrCover give the result of comparing each block with each other", () => {
  fc.assert(fc.property(fc.array(block), address, (blocks, found) => {
    const cover = new CidrCover(blocks);
    const isIn = (list: readonly Cidr[]) => list.some((each) => isWithin(each, found));
    assertEquals(cover.contains(found), isIn(blocks));
    assertEquals(blocks.some((each) => cidrContains(each, found)), isIn(blocks));
    assertEquals(isIn(cover.outermost), isIn(blocks));
    for (const each of cover.outermost) {
      const others = cover.outermost.filter((other) => other !== each);
      const network = parseIpAddress(each.slice(0, each.indexOf("/")));
      assertEquals(others.some((other) => isWithin(other, network)), false);
    }
  }));
});

Deno.test("CidrCover needs steps in proportion to the number of blocks", () => {
  const blocks = Array.from(
    { length: 20_000 },
    (_, index) => parseCidr(`10.${index >> 8}.${index & 255}.0/24`),
  );
  // Each with each is 400 million comparisons: half an hour.
  assertEquals(new CidrCover(blocks).outermost.length, blocks.length);
});
