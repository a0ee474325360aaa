import { assertEquals, assertStringIncludes } from "@std/assert";
import { parseIpAddress } from "../../../lib/net/ip_address.ts";
import { parsePort } from "../../../lib/net/port.ts";
import type { WatchedPacket } from "../../../lib/proxy/packet_trace.ts";
import { isTraceTable, markTableName, markTableText } from "./mark_table.ts";

const SENT: WatchedPacket = {
  family: "IPv4",
  from: undefined,
  sourcePort: parsePort(4000),
  to: parseIpAddress("10.96.0.1"),
  port: parsePort(80),
  protocol: "TCP",
  comesFrom: "this machine",
};
const OPTIONS = { table: markTableName("7-a"), beaconPort: 5555 };

Deno.test("markTableText() marks the first packet that is alike, in a table with an owner", () => {
  assertEquals(markTableText(SENT, OPTIONS), {
    table: "add table ip kube-relay-trace-7-a { flags owner; " +
      "chain prerouting { type filter hook prerouting priority -350; }; " +
      "chain output { type filter hook output priority -350; " +
      "ip daddr 127.0.0.1 udp sport 5555 udp dport 5555 meta nftrace set 1; }; }\n",
    rule: "add rule ip kube-relay-trace-7-a output " +
      "ip daddr 10.96.0.1 tcp sport 4000 tcp dport 80 tcp flags & (syn | ack) == syn " +
      "limit rate 1/day burst 1 packets meta nftrace set 1\n",
  });
});

Deno.test("markTableText() matches the first packet of a flow from another sender", () => {
  const { sourcePort: _, ...rest } = SENT;
  const { table, rule } = markTableText({
    ...rest,
    family: "IPv6",
    from: parseIpAddress("fd00::7"),
    to: parseIpAddress("fd00::1"),
    protocol: "UDP",
    comesFrom: "elsewhere",
  }, OPTIONS);
  assertStringIncludes(table, "hook prerouting priority -175; ");
  assertStringIncludes(
    rule,
    "prerouting ip6 saddr fd00::7 ip6 daddr fd00::1 udp dport 80 ct state new limit ",
  );
});

Deno.test("isTraceTable() knows the tables of all traces", () => {
  assertEquals([markTableName("1"), markTableName("99-f"), "kube-relay"].map(isTraceTable), [
    true,
    true,
    false,
  ]);
});
