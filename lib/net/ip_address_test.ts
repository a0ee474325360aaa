import { assertEquals, assertThrows } from "@std/assert";
import fc from "fast-check";
import {
  ipFamilyOf,
  isLoopback,
  isUnspecified,
  parseIpAddress,
  tryParseIpAddress,
} from "./ip_address.ts";

const CANONICAL: readonly (readonly [text: string, expected: string])[] = [
  ["10.0.0.1", "10.0.0.1"],
  ["0.0.0.0", "0.0.0.0"],
  ["255.255.255.255", "255.255.255.255"],
  ["010.000.000.001", "10.0.0.1"],
  ["192.168.08.09", "192.168.8.9"],
  ["::", "::"],
  ["::1", "::1"],
  ["FD00::00AB", "fd00::ab"],
  ["2001:db8:0:0:1:0:0:1", "2001:db8::1:0:0:1"],
  ["2001:db8:0:1:1:1:1:1", "2001:db8:0:1:1:1:1:1"],
  ["::ffff:10.0.0.1", "10.0.0.1"],
  ["::FFFF:0a00:0001", "10.0.0.1"],
  ["64:ff9b::10.0.0.1", "64:ff9b::a00:1"],
];

for (const [text, expected] of CANONICAL) {
  Deno.test(`parseIpAddress() reads '${text}' as ${expected}`, () => {
    assertEquals(String(parseIpAddress(text)), expected);
  });
}

const INVALID = [
  "",
  " ",
  "10.0.0",
  "10.0.0.0.1",
  "10.0.0.256",
  "10.0.0.-1",
  "10.0.0.1 ",
  "0x0a.0.0.1",
  "167772161",
  "localhost",
  ":",
  ":::",
  "1::2::3",
  "fd00::g",
  "fe80::1%eth0",
  "[::1]",
  "10.0.0.1:80",
  "::ffff:10.0.0.256",
  "1:2:3:4:5:6:7:8:9",
];

for (const text of INVALID) {
  Deno.test(`parseIpAddress() refuses '${text}' and quotes it`, () => {
    assertThrows(() => parseIpAddress(text), SyntaxError, `'${text}'`);
    assertEquals(tryParseIpAddress(text), undefined);
  });
}

Deno.test("parseIpAddress() writes IPv6 as the URL parser does, whatever the way in", () => {
  const group = fc.oneof(fc.constant(0), fc.integer({ min: 0, max: 0xffff }));
  fc.assert(
    fc.property(fc.array(group, { minLength: 8, maxLength: 8 }), (groups) => {
      // Mapped addresses become IPv4 here, and nowhere else.
      fc.pre(!(groups.slice(0, 5).every((value) => value === 0) && groups[5] === 0xffff));
      const text = groups.map((value) => value.toString(16).padStart(4, "0")).join(":");
      assertEquals(`[${parseIpAddress(text)}]`, new URL(`http://[${text}]/`).hostname);
    }),
  );
});

Deno.test("parseIpAddress() leaves its own result as it is", () => {
  fc.assert(
    fc.property(fc.oneof(fc.ipV4(), fc.ipV6()), (text) => {
      const once = parseIpAddress(text);
      assertEquals(parseIpAddress(once), once);
    }),
  );
});

Deno.test("ipFamilyOf() distinguishes the families", () => {
  assertEquals(ipFamilyOf(parseIpAddress("10.0.0.1")), "IPv4");
  assertEquals(ipFamilyOf(parseIpAddress("::1")), "IPv6");
  assertEquals(ipFamilyOf(parseIpAddress("::ffff:10.0.0.1")), "IPv4");
});

for (
  const [text, loopback, unspecified] of [
    ["127.0.0.1", true, false],
    ["127.255.0.9", true, false],
    ["::1", true, false],
    ["0.0.0.0", false, true],
    ["::", false, true],
    ["12.7.0.1", false, false],
    ["::127", false, false],
  ] as const
) {
  Deno.test(`isLoopback() and isUnspecified() of ${text}`, () => {
    const address = parseIpAddress(text);
    assertEquals([isLoopback(address), isUnspecified(address)], [loopback, unspecified]);
  });
}
