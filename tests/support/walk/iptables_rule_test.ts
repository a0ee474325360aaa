import { assertEquals, assertThrows } from "@std/assert";
import { splitWords } from "../../../backends/netfilter/iptables/iptables_objects.ts";
import { parseIptablesRule } from "./iptables_rule.ts";

Deno.test("splitWords() reads quotes and backslashes as iptables-restore does", () => {
  assertEquals(splitWords('-m comment --comment "a \\"b\\" \\\\c -j" -j X'), [
    ...["-m", "comment", "--comment", 'a "b" \\c -j', "-j", "X"],
  ]);
});

Deno.test("parseIptablesRule() refuses every rule that we do not write", () => {
  const rules = [
    "--frobnicate",
    "-m limit --limit 1/s -j DROP",
    "-p tcp --dport 80 -j DROP",
    "-m tcp --dport 80 -p tcp -j DROP",
    "! -j DROP",
    "-o eth0 -j DROP",
    "-m addrtype ! --src-type LOCAL -j DROP",
    "-m addrtype --src-type UNICAST -j DROP",
    "-m addrtype --dst-type BROADCAST,MULTICAST -j DROP",
    "-p tcp -m tcp --tcp-flags SYN SYN -j DROP",
    "-m statistic --mode nth --every 2 -j DROP",
    "-m recent --name X --rcheck -j DROP",
    "-m mark --mark 0x1/0x3 -j DROP",
    "-m nfacct --name x",
    "-m set --match-set X dst,both -j DROP",
    "-m set ! --frobnicate X dst -j DROP",
    "-m multiport --sports 80 -j DROP",
    "-m set --match-set X",
  ];
  for (const rule of rules) {
    assertThrows(() => parseIptablesRule(rule), SyntaxError, `Cannot read the rule '${rule}'`);
  }
});

Deno.test("parseIptablesRule() reads which sides of a packet a set is asked for", () => {
  const rule =
    "-p tcp -m set --match-set KUBE-LOOP-BACK dst,dst,src -m comment --comment x -j DROP";
  assertEquals(parseIptablesRule(rule).set, {
    name: "KUBE-LOOP-BACK",
    sides: ["dst", "dst", "src"],
  });
});

Deno.test("parseIptablesRule() reads the rules for links that pods share, which no walked packet meets", () => {
  for (
    const rule of [
      "-o cni0 -m addrtype --dst-type BROADCAST,MULTICAST -g KUBE-RELAY-POLICY-LINK-IN",
      "-d fe80::/10 -o cni0 -g KUBE-RELAY-POLICY-LINK-IN",
      "-i cni0 -o cni0 -p tcp -m conntrack --ctstate DNAT " +
      "-m tcp --tcp-flags FIN,SYN,RST,ACK SYN -j REJECT --reject-with icmp-port-unreachable",
    ]
  ) assertEquals(parseIptablesRule(rule).isNever, true, rule);
});
