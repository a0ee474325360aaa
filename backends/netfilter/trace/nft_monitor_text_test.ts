import fc from "fast-check";
import { assertEquals } from "@std/assert";
import { parseIpAddress } from "../../../lib/net/ip_address.ts";
import { nftMonitorLines, parseNftTraceLine } from "./nft_monitor_text.ts";

/** Printed by nft 1.0.6. */
const RECORDED = String
  .raw`trace id cc67f778 ip kube-relay nat-output packet: oif "v0" ip saddr 10.1.0.1 ip daddr 10.0.0.9 ip dscp cs0 ip ecn not-ect ip ttl 64 ip id 47170 ip length 60 tcp sport 45664 tcp dport 80 tcp flags == syn tcp window 64240 
trace id cc67f778 ip kube-relay nat-output rule jump services (verdict jump services)
trace id cc67f778 ip nat KUBE-SERVICES rule meta l4proto tcp ip daddr 10.0.0.9  tcp dport 80 counter packets 12 bytes 60 jump KUBE-SVC-ABC # handle 7 (verdict jump KUBE-SVC-ABC)
trace id 08d6b4c5 ip filter OUTPUT policy accept meta mark 0x00004000 
trace id fa6ad3a8 ip own o unknown rule handle 3 (verdict continue)
trace id df7c1ab7 ip6 own o packet: iif "lo" @ll,0,112 0x800 ip6 saddr ::1 ip6 daddr ::1 ip6 dscp cs0 ip6 ecn not-ect ip6 hoplimit 64 ip6 flowlabel 761802 ip6 length 9 udp sport 5555 udp dport 5555 udp length 9 @th,64,8 0x78 `
  .split("\n");

Deno.test("parseNftTraceLine() parses the output of nft", () => {
  const place = { id: "cc67f778", table: "ip kube-relay", chain: "nat-output" };
  assertEquals(RECORDED.map(parseNftTraceLine), [
    {
      ...place,
      kind: "packet",
      header: {
        source: parseIpAddress("10.1.0.1"),
        destination: parseIpAddress("10.0.0.9"),
        sourcePort: 45664,
        destinationPort: 80,
        id: 47170,
        leavesBy: "v0",
      },
    },
    { ...place, kind: "rule", rule: "jump services", verdict: "jump services" },
    {
      id: "cc67f778",
      table: "ip nat",
      chain: "KUBE-SERVICES",
      kind: "rule",
      rule: "meta l4proto tcp ip daddr 10.0.0.9 tcp dport 80 jump KUBE-SVC-ABC",
      verdict: "jump KUBE-SVC-ABC",
      handle: 7,
    },
    { id: "08d6b4c5", table: "ip filter", chain: "OUTPUT", kind: "policy", verdict: "accept" },
    {
      id: "fa6ad3a8",
      table: "ip own",
      chain: "o",
      kind: "rule",
      rule: "rule handle 3",
      verdict: "continue",
      handle: 3,
    },
    {
      id: "df7c1ab7",
      table: "ip6 own",
      chain: "o",
      kind: "packet",
      header: {
        source: parseIpAddress("::1"),
        destination: parseIpAddress("::1"),
        sourcePort: 5555,
        destinationPort: 5555,
        arrivedBy: "lo",
      },
    },
  ]);
});

Deno.test("parseNftTraceLine() accepts any text, and returns nothing for meaningless text", () => {
  for (const line of ["", "trace id", "add table ip x", "# new generation 6 by process 1 (nft)"]) {
    assertEquals(parseNftTraceLine(line), undefined);
  }
  fc.assert(fc.property(fc.string(), (line) => void parseNftTraceLine(line)));
});

Deno.test("parseNftTraceLine() accepts a line that is damaged anywhere", () => {
  const damage = fc.tuple(fc.constantFrom(...RECORDED), fc.nat(300), fc.string({ maxLength: 6 }));
  fc.assert(fc.property(damage, ([line, at, text]) => {
    parseNftTraceLine(line.slice(0, at));
    parseNftTraceLine(line.slice(0, at) + text + line.slice(at + 2));
  }));
});

Deno.test("nftMonitorLines() limits the objects that nft reads by a small table, which it lists last", () => {
  assertEquals(nftMonitorLines({ family: "IPv6", table: "kube-relay-trace-7" }), [
    ["nft", "-a", "monitor trace; list table ip6 kube-relay-trace-7"],
    ["nft", "-a", "monitor", "trace"],
  ]);
});
