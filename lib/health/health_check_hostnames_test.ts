import { assertEquals } from "@std/assert";
import { type IpFamily, parseIpAddress } from "../net/ip_address.ts";
import type { Wildcard } from "../os/wildcard.ts";
import { healthCheckHostnames } from "./service_health_server.ts";

const ADDRESSES = {
  IPv4: [parseIpAddress("192.0.2.1"), parseIpAddress("192.0.2.2")],
  IPv6: [parseIpAddress("2001:db8::1")],
};

const [IPV4, IPV6, BOTH]: readonly (readonly IpFamily[])[] = [["IPv4"], ["IPv6"], ["IPv4", "IPv6"]];

/** Name, the families of the Service, those that are everywhere, what `[::]` covers, and the result. */
const ROWS: readonly (readonly [
  string,
  readonly IpFamily[],
  readonly IpFamily[],
  Wildcard,
  readonly string[],
])[] = [
  ["one socket for both families if [::] covers both", BOTH!, BOTH!, "both", ["::"]],
  [
    "the same socket for a Service of one family, so that the other can join it",
    IPV4!,
    BOTH!,
    "both",
    ["::"],
  ],
  ["one socket for each family if [::] covers only IPv6", BOTH!, BOTH!, "ipv6-only", [
    "0.0.0.0",
    "::",
  ]],
  ["no IPv6 for an IPv4 Service if [::] covers only IPv6", IPV4!, BOTH!, "ipv6-only", ["0.0.0.0"]],
  ["IPv4 alone on a machine without IPv6", IPV4!, BOTH!, "none", ["0.0.0.0"]],
  ["the selected addresses of each family", BOTH!, [], "both", [
    "192.0.2.1",
    "192.0.2.2",
    "2001:db8::1",
  ]],
  ["the selected addresses of the Service's family only", IPV6!, [], "both", ["2001:db8::1"]],
  ["IPv4 everywhere next to selected IPv6 addresses", BOTH!, IPV4!, "both", [
    "0.0.0.0",
    "2001:db8::1",
  ]],
  ["no [::] next to selected IPv4 addresses that it would take", BOTH!, IPV6!, "both", [
    "192.0.2.1",
    "192.0.2.2",
    "2001:db8::1",
  ]],
  ["[::] next to selected IPv4 addresses if it covers only IPv6", BOTH!, IPV6!, "ipv6-only", [
    "192.0.2.1",
    "192.0.2.2",
    "::",
  ]],
  ["nothing for a Service of no family", [], BOTH!, "both", []],
];

for (const [name, has, everywhere, wildcard, expect] of ROWS) {
  Deno.test(`healthCheckHostnames() gives ${name}`, () => {
    const addresses = new Map(BOTH!.map((family) => [family, ADDRESSES[family]]));
    assertEquals([...healthCheckHostnames(has, everywhere, addresses, wildcard)], [...expect]);
  });
}
