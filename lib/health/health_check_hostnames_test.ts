import { assertEquals } from "@std/assert";
import { type IpFamily, parseIpAddress } from "../net/ip_address.ts";
import type { Wildcard } from "../os/wildcard.ts";
import { healthCheckHostnames } from "./service_health_server.ts";

const ADDRESSES = {
  IPv4: [parseIpAddress("192.0.2.1"), parseIpAddress("192.0.2.2")],
  IPv6: [parseIpAddress("2001:db8::1")],
};

const FAMILIES: Readonly<Record<string, readonly IpFamily[]>> = {
  ...{ none: [], IPv4: ["IPv4"], IPv6: ["IPv6"], both: ["IPv4", "IPv6"] },
};

/** Name, the families of the Service, those that are everywhere, what `[::]` covers, and the result. */
const ROWS = `
one socket for both families if [::] covers both | both | both | both | ::
the same socket for a Service of one family, so that the other can join it | IPv4 | both | both | ::
one socket for each family if [::] covers only IPv6 | both | both | ipv6-only | 0.0.0.0, ::
no IPv6 for an IPv4 Service if [::] covers only IPv6 | IPv4 | both | ipv6-only | 0.0.0.0
IPv4 alone on a machine without IPv6 | IPv4 | both | none | 0.0.0.0
the selected addresses of each family | both | none | both | 192.0.2.1, 192.0.2.2, 2001:db8::1
the selected addresses of the Service's family only | IPv6 | none | both | 2001:db8::1
IPv4 everywhere next to selected IPv6 addresses | both | IPv4 | both | 0.0.0.0, 2001:db8::1
no [::] next to selected IPv4 addresses that it would take | both | IPv6 | both | 192.0.2.1, 192.0.2.2, 2001:db8::1
[::] next to selected IPv4 addresses if it covers only IPv6 | both | IPv6 | ipv6-only | 192.0.2.1, 192.0.2.2, ::
nothing for a Service of no family | none | both | both | -
`.trim().split("\n").map((line) => line.split(" | "));

for (const [name, has = "", everywhere = "", wildcard, expected = ""] of ROWS) {
  Deno.test(`healthCheckHostnames() gives ${name}`, () => {
    const addresses = new Map(FAMILIES.both!.map((family) => [family, ADDRESSES[family]]));
    const found = healthCheckHostnames(
      ...[FAMILIES[has]!, FAMILIES[everywhere]!, addresses, wildcard as Wildcard] as const,
    );
    assertEquals([...found].join(", ") || "-", expected);
  });
}
