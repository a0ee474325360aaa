import { assertEquals } from "@std/assert";
import { FakeCommandRunner } from "../../../tests/support/fakes/fake_command_runner.ts";
import { lookUpRules } from "./rule_texts.ts";

const WARNING = "# Warning: table ip6 nat is managed by iptables-nft, do not touch!\n";
const OUTPUT = `	chain OUTPUT { # handle 1
		type nat hook output priority -100; policy accept;
		ip6 daddr fd00:2::8 tcp dport 80  counter packets 0 bytes 0 accept # handle 2
		ip6 daddr fd00:2::9 tcp dport 80 counter packets 1 bytes 80 jump KUBE-A # handle 5
	}
`;
const KUBE_A = `	chain KUBE-A { # handle 3
		counter packets 1 bytes 80 dnat to [fd00:1::1]:8080 # handle 4
	}
`;
const LISTING = `${WARNING}table ip6 nat { # handle 1\n${OUTPUT}\n${KUBE_A}}\n`;
const IPTABLES = "ip6tables-nft";
const LIST = "nft -a -t list chain ip6 nat";

/** One chain as nft prints it alone: the table has no number then. */
function alone(chain: string): string {
  return `${WARNING}table ip6 nat {\n${chain}}\n`;
}

Deno.test("a step of iptables-nft is described in the words of iptables", async () => {
  const commands = new FakeCommandRunner()
    .on(`${LIST} OUTPUT`, { stdout: alone(OUTPUT) })
    .on(`${LIST} KUBE-A`, { stdout: alone(KUBE_A) })
    .on("nft -a -t list ruleset inet", {
      stdout: "table inet firewall {\n\tchain input { # handle 1\n\t\treject # handle 6\n\t}\n}\n",
    })
    .on(`${IPTABLES} -t nat -S OUTPUT`, {
      stdout: "-P OUTPUT ACCEPT\n" +
        "-A OUTPUT -d fd00:2::8/128 -p tcp -m tcp --dport 80 -j ACCEPT\n" +
        "-A OUTPUT -d fd00:2::9/128 -p tcp -m tcp --dport 80 -m comment --comment hello -j KUBE-A\n",
    })
    .on(`${IPTABLES} -t nat -S KUBE-A`, {
      stdout: "-N KUBE-A\n-A KUBE-A -j DNAT --to-destination [fd00:1::1]:8080\n",
    });
  const steps = await lookUpRules(commands, [
    { place: "ip6 nat OUTPUT", rule: "ip6 daddr …", verdict: "jump KUBE-A", handle: 5 },
    { place: "ip6 nat KUBE-A", rule: "dnat …", verdict: "accept", handle: 4 },
    { place: "inet firewall output", rule: "drop", verdict: "drop", handle: 2 },
    { place: "inet firewall input", rule: "rule handle 6", verdict: "drop", handle: 6 },
    { place: "ip6 nat OUTPUT", verdict: "accept" },
  ], IPTABLES);
  assertEquals(steps, [
    {
      place: "nat OUTPUT",
      rule: "-d fd00:2::9/128 -p tcp -m tcp --dport 80 -m comment --comment hello -j KUBE-A",
      verdict: "jump KUBE-A",
    },
    { place: "nat KUBE-A", rule: "-j DNAT --to-destination [fd00:1::1]:8080", verdict: "accept" },
    { place: "inet firewall output", rule: "drop", verdict: "drop" },
    { place: "inet firewall input", rule: "reject", verdict: "drop" },
    { place: "nat OUTPUT", verdict: "accept" },
  ]);
});

Deno.test("a chain that iptables cannot print whole keeps the words of nft, whatever its name", async () => {
  const odd = LISTING.replace("KUBE-A {", "+A;flush {");
  const commands = new FakeCommandRunner()
    .on(`${LIST} OUTPUT`, { stdout: alone(OUTPUT) })
    .on(`${IPTABLES} -t nat -S OUTPUT`, { stdout: "-P OUTPUT ACCEPT\n-A OUTPUT -j ACCEPT\n" })
    .on("nft -a -t list ruleset ip6", { stdout: odd })
    .on(`${IPTABLES} -t nat -S +A;flush`, { code: 1, stderr: "incompatible" });
  const steps = [
    { place: "ip6 nat OUTPUT", rule: "accept", verdict: "accept", handle: 5 },
    { place: "ip6 nat +A;flush", rule: "rule handle 4", verdict: "accept", handle: 4 },
  ];
  assertEquals(await lookUpRules(commands, steps, IPTABLES), [
    { place: "nat OUTPUT", rule: "accept", verdict: "accept" },
    { place: "nat +A;flush", rule: "dnat to [fd00:1::1]:8080", verdict: "accept" },
  ]);
});
