import { assertEquals } from "@std/assert";
import { type IpFamily, parseIpAddress } from "../net/ip_address.ts";
import type { Wildcard } from "../os/wildcard.ts";
import { healthCheckHostnames } from "./service_health_server.ts";

const ADDRESSES = {
  IPv4: [parseIpAddress("192.0.2.1"), parseIpAddress("192.0.2.2")],
  IPv6: [parseIpAddress("2001:db8::1")],
};

interface Row {
  readonly name: string;
  readonly has: readonly IpFamily[];
  readonly everywhere: readonly IpFamily[];
  readonly wildcard?: Wildcard;
  readonly expect: readonly string[];
}

const BOTH: readonly IpFamily[] = ["IPv4", "IPv6"];

const ROWS: readonly Row[] = [
  {
    name: "one socket for both families if [::] covers both",
    has: BOTH,
    everywhere: BOTH,
    expect: ["::"],
  },
  {
    name: "the same socket for a Service of one family, so that the other can join it",
    has: ["IPv4"],
    everywhere: BOTH,
    expect: ["::"],
  },
  {
    name: "one socket for each family if [::] covers only IPv6",
    has: BOTH,
    everywhere: BOTH,
    wildcard: "ipv6-only",
    expect: ["0.0.0.0", "::"],
  },
  {
    name: "no IPv6 for an IPv4 Service if [::] covers only IPv6",
    has: ["IPv4"],
    everywhere: BOTH,
    wildcard: "ipv6-only",
    expect: ["0.0.0.0"],
  },
  {
    name: "IPv4 alone on a machine without IPv6",
    has: ["IPv4"],
    everywhere: BOTH,
    wildcard: "none",
    expect: ["0.0.0.0"],
  },
  {
    name: "the selected addresses of each family",
    has: BOTH,
    everywhere: [],
    expect: ["192.0.2.1", "192.0.2.2", "2001:db8::1"],
  },
  {
    name: "the selected addresses of the Service's family only",
    has: ["IPv6"],
    everywhere: [],
    expect: ["2001:db8::1"],
  },
  {
    name: "IPv4 everywhere next to selected IPv6 addresses",
    has: BOTH,
    everywhere: ["IPv4"],
    expect: ["0.0.0.0", "2001:db8::1"],
  },
  {
    name: "no [::] next to selected IPv4 addresses that it would take",
    has: BOTH,
    everywhere: ["IPv6"],
    expect: ["192.0.2.1", "192.0.2.2", "2001:db8::1"],
  },
  {
    name: "[::] next to selected IPv4 addresses if it covers only IPv6",
    has: BOTH,
    everywhere: ["IPv6"],
    wildcard: "ipv6-only",
    expect: ["192.0.2.1", "192.0.2.2", "::"],
  },
  { name: "nothing for a Service of no family", has: [], everywhere: BOTH, expect: [] },
];

for (const { name, has, everywhere, wildcard = "both", expect } of ROWS) {
  Deno.test(`healthCheckHostnames() gives ${name}`, () => {
    const addresses = new Map(BOTH.map((family) => [family, ADDRESSES[family]]));
    assertEquals([...healthCheckHostnames(new Set(has), { everywhere, addresses, wildcard })], [
      ...expect,
    ]);
  });
}
