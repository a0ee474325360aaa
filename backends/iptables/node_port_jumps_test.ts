import { assertEquals } from "@std/assert";
import { parseIpAddress } from "../../lib/net/ip_address.ts";
import { defaultRenderOptions } from "../../tests/support/builders/iptables_render_options.ts";
import { ruleText } from "../netfilter/iptables/iptables_objects.ts";
import { nodePortJumps } from "./node_port_jumps.ts";
import { ALL_FEATURES, type IptablesRenderOptions } from "./render_options.ts";

function jumps(options: IptablesRenderOptions, ...addresses: readonly string[]): string[] {
  const shared = { nodePortAddresses: addresses.map(parseIpAddress) };
  return nodePortJumps("X", shared, options).map(({ comment: _, ...rule }) => ruleText(rule));
}

const IPV4 = defaultRenderOptions("IPv4");
const IPV6 = defaultRenderOptions("IPv6");

Deno.test("nodePortJumps() asks whether an address is the node's, and leaves loopback out", () => {
  const local = "-m addrtype --dst-type LOCAL -j X";
  assertEquals(jumps(IPV4), [local]);
  assertEquals(jumps({ ...IPV4, localhostNodePorts: false }), [`! -d 127.0.0.0/8 ${local}`]);
  assertEquals(jumps(IPV6), [`! -d ::1 ${local}`]);
});

Deno.test("nodePortJumps() names each address if some are chosen, or addrtype is missing", () => {
  const chosen = { ...IPV4, nodePortAddresses: { kind: "cidrs" as const, cidrs: [] } };
  const [loopback, node] = ["127.0.0.1", "192.168.0.2"];
  assertEquals(jumps(chosen, loopback, node), ["-d 127.0.0.1 -j X", "-d 192.168.0.2 -j X"]);
  const closed = { ...chosen, localhostNodePorts: false };
  assertEquals(jumps(closed, loopback, node), ["-d 192.168.0.2 -j X"]);
  const bare = { ...IPV6, features: { ...ALL_FEATURES, addrtype: false } };
  assertEquals(jumps(bare, "::1", "2001:db8::2"), ["-d 2001:db8::2 -j X"]);
});
