import { assertEquals, assertThrows } from "@std/assert";
import fc from "fast-check";
import {
  cidrContains,
  cidrFamilyOf,
  hostCidr,
  parseCidr,
  prefixLengthOf,
  tryParseCidr,
} from "./cidr.ts";
import { parseIpAddress } from "./ip_address.ts";

const CANONICAL: readonly (readonly [text: string, expected: string])[] = [
  ["10.0.0.0/8", "10.0.0.0/8"],
  ["10.1.2.3/8", "10.0.0.0/8"],
  ["10.1.2.3/32", "10.1.2.3/32"],
  ["10.1.2.3/31", "10.1.2.2/31"],
  ["10.1.2.3/0", "0.0.0.0/0"],
  ["010.00.0.0/8", "10.0.0.0/8"],
  ["FD00::1:2/64", "fd00::/64"],
  ["fd00::1:2/112", "fd00::1:0/112"],
  ["fd00::ffff/121", "fd00::ff80/121"],
  ["::1/0", "::/0"],
  ["::1/128", "::1/128"],
];

for (const [text, expected] of CANONICAL) {
  Deno.test(`parseCidr() reads '${text}' as ${expected}, host bits cleared`, () => {
    assertEquals(String(parseCidr(text)), expected);
  });
}

const INVALID = [
  "",
  "/",
  "/8",
  "10.0.0.0",
  "10.0.0.0/",
  "10.0.0.0/33",
  "10.0.0.0/-1",
  "10.0.0.0/8/8",
  "10.0.0.0/ 8",
  "10.0.0/8",
  "10.0.0.0/255.0.0.0",
  "fd00::/129",
  "fd00::",
  "primary",
  // The length counts bits of 128, the canonical address has 32.
  "::ffff:10.0.0.0/104",
  "::ffff:10.0.0.0/24",
];

for (const text of INVALID) {
  Deno.test(`parseCidr() refuses '${text}' and quotes it`, () => {
    assertThrows(() => parseCidr(text), SyntaxError, `'${text}'`);
    assertEquals(tryParseCidr(text), undefined);
  });
}

for (
  const [cidr, address, expected] of [
    ["10.0.0.0/8", "10.255.0.1", true],
    ["10.0.0.0/8", "11.0.0.0", false],
    ["0.0.0.0/0", "203.0.113.1", true],
    ["0.0.0.0/0", "::1", false],
    ["::/0", "10.0.0.1", false],
    ["::/0", "fd00::1", true],
    ["fd00::/64", "fd00::ffff:1", true],
    ["fd00::/64", "fd00:0:0:1::1", false],
    ["192.0.2.7/32", "192.0.2.7", true],
    ["192.0.2.7/32", "192.0.2.6", false],
  ] as const
) {
  Deno.test(`cidrContains() of ${cidr} and ${address} is ${expected}`, () => {
    assertEquals(cidrContains(parseCidr(cidr), parseIpAddress(address)), expected);
  });
}

Deno.test("cidrContains() holds for every address and the block made from it", () => {
  fc.assert(
    fc.property(fc.oneof(fc.ipV4(), fc.ipV6()), fc.nat(128), (text, length) => {
      const address = parseIpAddress(text);
      const cidr = tryParseCidr(`${address}/${address.includes(":") ? length : length % 33}`);
      assertEquals(cidr !== undefined && cidrContains(cidr, address), true);
    }),
  );
});

Deno.test("hostCidr() holds one address", () => {
  assertEquals(String(hostCidr(parseIpAddress("10.0.0.1"))), "10.0.0.1/32");
  assertEquals(String(hostCidr(parseIpAddress("fd00::1"))), "fd00::1/128");
});

Deno.test("cidrFamilyOf() and prefixLengthOf() read a block", () => {
  const blocks = [parseCidr("10.0.0.0/8"), parseCidr("fd00::/64"), parseCidr("::/0")];
  assertEquals(blocks.map(cidrFamilyOf), ["IPv4", "IPv6", "IPv6"]);
  assertEquals(blocks.map(prefixLengthOf), [8, 64, 0]);
});
