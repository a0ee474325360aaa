import { parseIpAddress } from "../net/ip_address.ts";
import { assertEquals, assertThrows } from "@std/assert";
import { nodePortAddressesFor } from "./node_state.ts";
import { nodePortEntries } from "./backend.ts";

const NODE = { addresses: ["192.168.0.2", "192.168.1.2", "2001:db8::2"].map(parseIpAddress) };
const IPV4_NODE = { addresses: [parseIpAddress("192.168.0.2")] };
const NODES: Readonly<Record<string, typeof NODE>> = {
  "IPv4 only": IPV4_NODE,
  loopback: { addresses: ["127.0.0.1", "::1"].map(parseIpAddress) },
};

function listOf(cell: string): readonly string[] {
  return cell === "-" ? [] : cell.split(", ");
}

/** control-plane 2.7: the entries, what they come to in IPv4 and in IPv6, and another node. */
const ROWS = `
matches everything where unset | - | all | all
uses the first Node address of each family for 'primary' | primary | 192.168.0.2/32 | 2001:db8::2/128
matches nothing for 'primary' if the Node has no address of the family | primary | 192.168.0.2/32 | - | IPv4 only
skips loopback for 'primary' | primary | - | - | loopback
gives each family its own ranges | 192.168.0.5/24, 2001:db8::/64, 10.0.0.0/8 | 192.168.0.0/24, 10.0.0.0/8 | 2001:db8::/64
matches everything in a family without a range | 192.168.0.0/24 | 192.168.0.0/24 | all
matches everything with a /0, whatever the other entries are | 192.168.0.0/24, 0.0.0.0/0, 2001:db8::/64 | all | 2001:db8::/64
treats 'localhost' as the loopback ranges | localhost | 127.0.0.0/8 | ::1/128
accepts keywords next to ranges | primary, localhost, 10.0.0.0/8 | 192.168.0.2/32, 127.0.0.0/8, 10.0.0.0/8 | 2001:db8::2/128, ::1/128
matches everything with 'all', whatever the other entries are | primary, all, 10.0.0.0/8 | all | all
adds nothing for 'primary' next to a range if the Node has no address of the family | primary, 2001:db8::/64 | 192.168.0.2/32 | 2001:db8::/64 | IPv4 only
`.trim().split("\n").map((line) => line.split(" | "));

for (const [name, entries = "", forIpv4 = "", forIpv6 = "", node = ""] of ROWS) {
  Deno.test(`nodePortAddressesFor() ${name}`, () => {
    for (const [family, expected] of [["IPv4", forIpv4], ["IPv6", forIpv6]] as const) {
      const found = nodePortAddressesFor(family, listOf(entries), NODES[node] ?? NODE);
      assertEquals<unknown>(found.kind === "all" ? ["all"] : found.cidrs, listOf(expected));
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
