import { assertEquals, assertThrows } from "@std/assert";
import {
  formatHostPort,
  parsePort,
  parseProtocol,
  PROTOCOLS,
  tryParsePort,
  tryParseProtocol,
} from "./port.ts";

for (const value of [1, 80, 65535, "1", "80", "00080", "65535"]) {
  Deno.test(`parsePort() reads ${JSON.stringify(value)}`, () => {
    assertEquals(Number(parsePort(value)), Number(value));
  });
}

for (const value of [0, -1, 65536, 80.5, NaN, Infinity, "", "0", "http", "-80", "8e1", " 80"]) {
  Deno.test(`parsePort() refuses ${typeof value} ${value} and quotes it`, () => {
    assertThrows(() => parsePort(value), RangeError, `'${value}'`);
    assertEquals(tryParsePort(value), undefined);
  });
}

Deno.test("parseProtocol() reads every protocol, and treats none as TCP", () => {
  assertEquals(PROTOCOLS.map(parseProtocol), ["TCP", "UDP", "SCTP"]);
  assertEquals(parseProtocol(undefined), "TCP");
});

for (const value of ["", "tcp", "ICMP", "TCP "]) {
  Deno.test(`parseProtocol() refuses '${value}' and quotes it`, () => {
    assertThrows(() => parseProtocol(value), RangeError, `'${value}'`);
    assertEquals(tryParseProtocol(value), undefined);
  });
}

Deno.test("formatHostPort() puts brackets around IPv6", () => {
  assertEquals(formatHostPort("10.0.0.1", 80), "10.0.0.1:80");
  assertEquals(formatHostPort("fd00::1", 80), "[fd00::1]:80");
});
