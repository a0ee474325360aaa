import { assert, assertEquals } from "@std/assert";
import fc from "fast-check";
import { parseIpAddress } from "../../../lib/net/ip_address.ts";
import {
  type CarriedConnection,
  MOST_HEADER_BYTES,
  parseProxyDatagram,
  parseProxyHeader,
  proxyHeaderV1,
  proxyHeaderV2,
} from "./proxy_header.ts";

const encoder = new TextEncoder();
const SIGNATURE = "0d0a0d0a000d0a515549540a";

function connection(from: string, to: string): CarriedConnection {
  return {
    source: { address: parseIpAddress(from), port: 51_000 },
    destination: { address: parseIpAddress(to), port: 443 },
  };
}

function v1(text: string): Uint8Array {
  return encoder.encode(text);
}

function v2(hex: string): Uint8Array {
  return Uint8Array.fromHex(SIGNATURE + hex);
}

Deno.test("proxyHeaderV1() writes the line of the specification", () => {
  const text = (from: string, to: string) =>
    new TextDecoder().decode(proxyHeaderV1(connection(from, to)));
  assertEquals(
    text("192.0.2.7", "10.96.0.1"),
    "PROXY TCP4 192.0.2.7 10.96.0.1 51000 443\r\n",
  );
  assertEquals(
    text("2001:db8::7", "10.96.0.1"),
    "PROXY TCP6 2001:db8::7 ::ffff:10.96.0.1 51000 443\r\n",
  );
});

Deno.test("proxyHeaderV2() writes the bytes of the specification", () => {
  assertEquals(
    proxyHeaderV2(connection("192.0.2.7", "10.96.0.1"), "UDP").toHex(),
    `${SIGNATURE}2112000cc00002070a600001c73801bb`,
  );
  assertEquals(
    proxyHeaderV2(connection("2001:db8::7", "10.96.0.1"), "TCP").toHex(),
    `${SIGNATURE}2121002420010db8000000000000000000000007` +
      `00000000000000000000ffff0a600001c73801bb`,
  );
});

const addresses = fc.oneof(
  fc.constantFrom(
    "10.0.0.1",
    "255.255.255.255",
    "0.0.0.0",
    "::",
    "fd00::1",
    "2001:db8:1:2:3:4:5:6",
  ),
  fc.ipV4(),
  fc.ipV6(),
).map(parseIpAddress);
const ends = fc.record({ address: addresses, port: fc.integer({ min: 0, max: 65_535 }) });
const connections = fc.record({ source: ends, destination: ends });

Deno.test("parseProxyHeader() reads what is written, at every length incomplete before", () => {
  fc.assert(
    fc.property(connections, fc.boolean(), (carried, isText) => {
      const header = isText ? proxyHeaderV1(carried) : proxyHeaderV2(carried, "TCP");
      for (let length = 0; length < header.length; length++) {
        assertEquals(parseProxyHeader(header.subarray(0, length)), { kind: "incomplete" });
      }
      const { length } = header;
      const more = new Uint8Array([...header, 1, 2, 3]);
      for (const bytes of [header, more]) {
        assertEquals(parseProxyHeader(bytes), { kind: "complete", length, carried });
      }
    }),
    { numRuns: 200, seed: 18 },
  );
});

Deno.test("parseProxyHeader() survives any bytes and never reads beyond its limit", () => {
  const tails = fc.uint8Array({ maxLength: 200 });
  fc.assert(
    fc.property(
      fc.constantFrom("", "50524f585920", SIGNATURE, `${SIGNATURE}21`),
      tails,
      (start, tail) => {
        const result = parseProxyHeader(new Uint8Array([...Uint8Array.fromHex(start), ...tail]));
        if (result.kind === "complete") assert(result.length <= MOST_HEADER_BYTES);
      },
    ),
    { numRuns: 2000, seed: 18 },
  );
});

const WITHOUT_ADDRESSES: readonly [string, Uint8Array][] = [
  ["PROXY UNKNOWN", v1("PROXY UNKNOWN\r\n")],
  ["PROXY UNKNOWN with addresses", v1("PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n")],
  ["LOCAL", v2("20000000")],
  ["LOCAL with addresses", v2("2011000cc00002070a600001c73801bb")],
  ["an unspecified family", v2("21000000")],
  ["an unspecified family with a TLV", v2("2100000304000000".slice(0, 14))],
  ["a Unix socket", v2(`213100d8${"00".repeat(216)}`)],
];
for (const [name, bytes] of WITHOUT_ADDRESSES) {
  Deno.test(`parseProxyHeader() finds no addresses in ${name}`, () => {
    assertEquals(parseProxyHeader(bytes), { kind: "complete", length: bytes.length });
  });
}

Deno.test("parseProxyHeader() passes over values after the addresses", () => {
  const bytes = v2("2111000fc00002070a600001c73801bb040000");
  const { source, destination } = connection("192.0.2.7", "10.96.0.1");
  assertEquals(parseProxyHeader(bytes), {
    kind: "complete",
    length: bytes.length,
    carried: { source, destination },
  });
});

Deno.test("parseProxyHeader() takes an IPv4 address inside IPv6 as IPv4", () => {
  const result = parseProxyHeader(v1("PROXY TCP6 ::ffff:10.0.0.1 fd00::1 1 2\r\n"));
  assertEquals(
    result.kind === "complete" && result.carried?.source.address,
    parseIpAddress("10.0.0.1"),
  );
});

const INVALID: readonly [string, Uint8Array][] = [
  ["HTTP", v1("GET / HTTP/1.1\r\n")],
  ["TLS", Uint8Array.fromHex("160301")],
  ["a line of another protocol", v1("PRI * HTTP/2.0\r\n")],
  ["a line that is too long", v1(`PROXY TCP4 ${"1".repeat(100)}`)],
  ["a line without CR", v1("PROXY TCP4 1.2.3.4 1.2.3.4 1 2\n")],
  ["a family that is unknown", v1("PROXY UDP4 1.2.3.4 1.2.3.4 1 2\r\n")],
  ["an address of another family", v1("PROXY TCP4 ::1 ::1 1 2\r\n")],
  ["a host name", v1("PROXY TCP4 localhost 1.2.3.4 1 2\r\n")],
  ["a port that is too high", v1("PROXY TCP4 1.2.3.4 1.2.3.4 65536 2\r\n")],
  ["a port with a sign", v1("PROXY TCP4 1.2.3.4 1.2.3.4 +1 2\r\n")],
  ["a missing port", v1("PROXY TCP4 1.2.3.4 1.2.3.4 1\r\n")],
  ["one word too many", v1("PROXY TCP4 1.2.3.4 1.2.3.4 1 2 3\r\n")],
  ["two blanks", v1("PROXY TCP4  1.2.3.4 1.2.3.4 1 2\r\n")],
  ["another version", v2("31110000")],
  ["another command", v2("22110000")],
  ["UDP", v2("2112000cc00002070a600001c73801bb")],
  ["a family that does not exist", v2("21410000")],
  ["addresses that do not fit", v2("2111000b")],
  ["a length beyond the limit", v2("2111ffff")],
];
for (const [name, bytes] of INVALID) {
  Deno.test(`parseProxyHeader() refuses ${name}`, () => {
    assertEquals(parseProxyHeader(bytes).kind, "invalid");
  });
}

Deno.test("parseProxyDatagram() reads what is written, before any data, and nothing that is cut", () => {
  fc.assert(
    fc.property(connections, (carried) => {
      const header = proxyHeaderV2(carried, "UDP");
      const { length } = header;
      for (const bytes of [header, new Uint8Array([...header, 1, 2, 3])]) {
        assertEquals(parseProxyDatagram(bytes), { kind: "complete", length, carried });
      }
      for (let cut = 0; cut < length; cut++) {
        assertEquals(parseProxyDatagram(header.subarray(0, cut)).kind, "invalid");
      }
    }),
    { numRuns: 50, seed: 18 },
  );
});

const INVALID_DATAGRAMS: readonly [string, Uint8Array, string][] = [
  [
    "version 1",
    v1("PROXY TCP4 1.2.3.4 1.2.3.4 1 2\r\n"),
    "it does not begin with a PROXY header of",
  ],
  ["data without a header", v1("query"), "it does not begin with a PROXY header of version 2"],
  ["a header for TCP", v2("2111000cc00002070a600001c73801bb"), "it is not for a UDP datagram"],
  ["a header that is cut", v2("2112000cc00002070a600001c738"), "the datagram ends within it"],
  ["LOCAL that is cut", v2("20000004"), "the datagram ends within it"],
];
for (const [name, bytes, reason] of INVALID_DATAGRAMS) {
  Deno.test(`parseProxyDatagram() refuses ${name}`, () => {
    const result = parseProxyDatagram(bytes);
    assert(result.kind === "invalid" && result.reason.startsWith(reason), JSON.stringify(result));
  });
}

Deno.test("parseProxyDatagram() finds no addresses in LOCAL", () => {
  assertEquals(parseProxyDatagram(v2("20000000")), { kind: "complete", length: 16 });
});
