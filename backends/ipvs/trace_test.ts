import { assertEquals } from "@std/assert";
import fc from "fast-check";
import { parseIpAddress } from "../../lib/net/ip_address.ts";
import { parseIpvsConnection } from "./trace.ts";

const HEAD = "Pro FromIP   FPrt ToIP     TPrt DestIP   DPrt State       Expires PEName PEData";
const LINE = "TCP 0A000001 A1B2 0A600001 0050 0A010102 1F90 ESTABLISHED     899";
const LINE_6 = "UDP fd00:0010:0000:0000:0000:0000:0000:0099 A1B2 " +
  "fd00:0172:0030:0000:0000:0000:0000:0041 0050 fd00:0010:0000:0000:0000:0000:0000:0a01 1F90 " +
  "UDP             299";

Deno.test("parseIpvsConnection() reads a connection of either family", () => {
  assertEquals(parseIpvsConnection(LINE), {
    protocol: "TCP",
    from: parseIpAddress("10.0.0.1"),
    fromPort: 0xa1b2,
    to: parseIpAddress("10.96.0.1"),
    toPort: 80,
    endpoint: parseIpAddress("10.1.1.2"),
    endpointPort: 8080,
    state: "ESTABLISHED",
  });
  assertEquals(parseIpvsConnection(LINE_6)?.endpoint, parseIpAddress("fd00:10::a01"));
  assertEquals(parseIpvsConnection(HEAD), undefined);
});

Deno.test("parseIpvsConnection() accepts any text, and a line that is damaged anywhere", () => {
  fc.assert(fc.property(fc.string(), (line) => void parseIpvsConnection(line)));
  const damage = fc.tuple(fc.constantFrom(LINE, LINE_6), fc.nat(200), fc.string({ maxLength: 4 }));
  fc.assert(fc.property(damage, ([line, at, text]) => {
    parseIpvsConnection(line.slice(0, at) + text + line.slice(at + 1));
  }));
});
