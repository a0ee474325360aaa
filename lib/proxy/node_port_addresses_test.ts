import { parseIpAddress } from "../net/ip_address.ts";
import { assertEquals, assertThrows } from "@std/assert";
import { nodePortAddressesFor } from "./node_state.ts";
import { nodePortEntries } from "./backend.ts";

const NODE = { addresses: ["192.168.0.2", "192.168.1.2", "2001:db8::2"].map(parseIpAddress) };
const IPV4_NODE = { addresses: [parseIpAddress("192.168.0.2")] };
const LOOPBACK_NODE = { addresses: ["127.0.0.1", "::1"].map(parseIpAddress) };
const ALL = "all";

/** control-plane 2.7; a list stands for `cidrs`. */
const ROWS: readonly {
  readonly name: string;
  readonly entries: readonly string[];
  readonly node?: typeof NODE;
  readonly IPv4: readonly string[] | typeof ALL;
  readonly IPv6: readonly string[] | typeof ALL;
}[] = [
  { name: "matches everything where unset", entries: [], IPv4: ALL, IPv6: ALL },
  {
    name: "uses the first Node address of each family for 'primary'",
    entries: ["primary"],
    IPv4: ["192.168.0.2/32"],
    IPv6: ["2001:db8::2/128"],
  },
  {
    name: "matches nothing for 'primary' if the Node has no address of the family",
    entries: ["primary"],
    node: IPV4_NODE,
    IPv4: ["192.168.0.2/32"],
    IPv6: [],
  },
  {
    name: "skips loopback for 'primary'",
    entries: ["primary"],
    node: LOOPBACK_NODE,
    IPv4: [],
    IPv6: [],
  },
  {
    name: "gives each family its own ranges",
    entries: ["192.168.0.5/24", "2001:db8::/64", "10.0.0.0/8"],
    IPv4: ["192.168.0.0/24", "10.0.0.0/8"],
    IPv6: ["2001:db8::/64"],
  },
  {
    name: "matches everything in a family without a range",
    entries: ["192.168.0.0/24"],
    IPv4: ["192.168.0.0/24"],
    IPv6: ALL,
  },
  {
    name: "matches everything with a /0, whatever the other entries are",
    entries: ["192.168.0.0/24", "0.0.0.0/0", "2001:db8::/64"],
    IPv4: ALL,
    IPv6: ["2001:db8::/64"],
  },
  {
    name: "treats 'localhost' as the loopback ranges",
    entries: ["localhost"],
    IPv4: ["127.0.0.0/8"],
    IPv6: ["::1/128"],
  },
  {
    name: "accepts keywords next to ranges",
    entries: ["primary", "localhost", "10.0.0.0/8"],
    IPv4: ["192.168.0.2/32", "127.0.0.0/8", "10.0.0.0/8"],
    IPv6: ["2001:db8::2/128", "::1/128"],
  },
  {
    name: "matches everything with 'all', whatever the other entries are",
    entries: ["primary", "all", "10.0.0.0/8"],
    IPv4: ALL,
    IPv6: ALL,
  },
  {
    name: "adds nothing for 'primary' next to a range if the Node has no address of the family",
    entries: ["primary", "2001:db8::/64"],
    node: IPV4_NODE,
    IPv4: ["192.168.0.2/32"],
    IPv6: ["2001:db8::/64"],
  },
];

for (const { name, entries, node = NODE, ...expected } of ROWS) {
  Deno.test(`nodePortAddressesFor() ${name}`, () => {
    for (const family of ["IPv4", "IPv6"] as const) {
      const found = nodePortAddressesFor(family, entries, node);
      assertEquals<unknown>(found.kind === "all" ? ALL : found.cidrs, expected[family]);
    }
  });
}

Deno.test("nodePortAddressesFor() refuses an entry that is neither a range nor 'primary'", () => {
  assertThrows(() => nodePortAddressesFor("IPv4", ["secondary"], NODE), SyntaxError, "'secondary'");
});

Deno.test("nodePortEntries() treats an unset list as 'primary' in nftables mode only", () => {
  assertEquals(nodePortEntries([], "nftables"), ["primary"]);
  assertEquals(nodePortEntries(["all"], "nftables"), ["all"]);
  for (const mode of ["iptables", "ipvs", "userspace"] as const) {
    assertEquals(nodePortEntries([], mode), []);
  }
});
