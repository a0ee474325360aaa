import { assertEquals } from "@std/assert";
import { parseIpAddress } from "../net/ip_address.ts";
import { nodeAddressesOf } from "./node_addresses.ts";

const DUAL = ["90.90.90.90", "2001:db8::2"];

/** control-plane 2.3: Node, bindAddress, primary family, IPv4 address, IPv6 address. */
const ROWS: readonly (readonly [readonly string[], string, string, string, string])[] = [
  [[], "0.0.0.0", "IPv4", "127.0.0.1", "::1"],
  [[], "::", "IPv4", "127.0.0.1", "::1"],
  [[], "10.0.0.1", "IPv4", "10.0.0.1", "::1"],
  [[], "fd00:4321::2", "IPv6", "127.0.0.1", "fd00:4321::2"],
  [["192.168.1.1"], "::", "IPv4", "192.168.1.1", "::1"],
  [["fd00:1234::1"], "0.0.0.0", "IPv6", "127.0.0.1", "fd00:1234::1"],
  [DUAL, "::", "IPv4", "90.90.90.90", "2001:db8::2"],
  [DUAL.toReversed(), "0.0.0.0", "IPv6", "90.90.90.90", "2001:db8::2"],
  [DUAL.toReversed(), "80.80.80.80", "IPv4", "80.80.80.80", "2001:db8::2"],
  [DUAL.toReversed(), "127.0.0.1", "IPv4", "127.0.0.1", "2001:db8::2"],
  [DUAL, "::1", "IPv6", "90.90.90.90", "::1"],
  [["90.90.90.90", "91.91.91.91"], "0.0.0.0", "IPv4", "90.90.90.90", "::1"],
];

for (const [node, bindAddress, primary, ipv4, ipv6] of ROWS) {
  const name = node.length === 0 ? "no address" : node.join(" and ");
  Deno.test(`nodeAddressesOf() for a Node with ${name} and bindAddress ${bindAddress}`, () => {
    const found = nodeAddressesOf(node.map(parseIpAddress), parseIpAddress(bindAddress));
    assertEquals([found.primary, found.IPv4.address, found.IPv6.address], [primary, ipv4, ipv6]);
  });
}

Deno.test("nodeAddressesOf() names the source of each address", () => {
  const found = nodeAddressesOf([parseIpAddress("2001:db8::2")], parseIpAddress("10.0.0.1"));
  assertEquals([found.IPv4.origin, found.IPv6.origin], ["bindAddress", "Node"]);
  assertEquals(nodeAddressesOf([], parseIpAddress("::")).IPv6.origin, "none");
});
