import { assertEquals } from "@std/assert";
import fc from "fast-check";
import { cidrContains, parseCidr } from "./cidr.ts";
import { CidrCover } from "./cidr_cover.ts";
import { parseIpAddress } from "./ip_address.ts";

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

Deno.test("CidrCover gives the result of comparing each block with each other", () => {
  const octet = fc.nat({ max: 3 });
  const address = fc.tuple(octet, octet, octet, octet).map((octets) => octets.join("."));
  const block = fc.tuple(address, fc.nat({ max: 32 })).map(([text, length]) =>
    parseCidr(`${text}/${length}`)
  );
  fc.assert(fc.property(fc.array(block), address.map(parseIpAddress), (blocks, found) => {
    const cover = new CidrCover(blocks);
    const isIn = (list: typeof blocks) => list.some((each) => cidrContains(each, found));
    assertEquals(cover.contains(found), isIn(blocks));
    assertEquals(isIn([...cover.outermost]), isIn(blocks));
    for (const each of cover.outermost) {
      const others = cover.outermost.filter((other) => other !== each);
      const network = parseIpAddress(each.slice(0, each.indexOf("/")));
      assertEquals(others.some((other) => cidrContains(other, network)), false);
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
