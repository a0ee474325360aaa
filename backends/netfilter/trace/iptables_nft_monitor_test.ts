import { assertEquals } from "@std/assert";
import fc from "fast-check";
import { FakeCommandRunner } from "../../../tests/support/fake_command_runner.ts";
import { inWordsOfIptables, iptablesNftMonitor } from "./iptables_nft_monitor.ts";
import { listRules, RuleListingReader, tellUnknownRules } from "./rule_listing.ts";

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
const LIST = "nft -a -t list chain ip6 nat";

/** One chain as nft prints it alone: the table has no number then. */
function alone(chain: string): string {
  return `${WARNING}table ip6 nat {\n${chain}}\n`;
}

Deno.test("a step of iptables-nft is told in the words of iptables", async () => {
  const commands = new FakeCommandRunner()
    .on(`${LIST} OUTPUT`, { stdout: alone(OUTPUT) })
    .on(`${LIST} KUBE-A`, { stdout: alone(KUBE_A) })
    .on("ip6tables-nft -t nat -S OUTPUT", {
      stdout: "-P OUTPUT ACCEPT\n" +
        "-A OUTPUT -d fd00:2::8/128 -p tcp -m tcp --dport 80 -j ACCEPT\n" +
        "-A OUTPUT -d fd00:2::9/128 -p tcp -m tcp --dport 80 -m comment --comment hello -j KUBE-A\n",
    })
    .on("ip6tables-nft -t nat -S KUBE-A", {
      stdout: "-N KUBE-A\n-A KUBE-A -j DNAT --to-destination [fd00:1::1]:8080\n",
    });
  const { finish } = iptablesNftMonitor({ commands }, { save: "ip6tables-nft-save" });
  const steps = await finish?.([
    { place: "ip6 nat OUTPUT", rule: "ip6 daddr …", verdict: "jump KUBE-A", handle: 5 },
    { place: "ip6 nat KUBE-A", rule: "dnat …", verdict: "accept", handle: 4 },
    { place: "inet firewall output", rule: "drop", verdict: "drop", handle: 2 },
    { place: "ip6 nat OUTPUT", verdict: "accept" },
  ]);
  assertEquals(steps, [
    {
      place: "nat OUTPUT",
      rule: "-d fd00:2::9/128 -p tcp -m tcp --dport 80 -m comment --comment hello -j KUBE-A",
      verdict: "jump KUBE-A",
    },
    {
      place: "nat KUBE-A",
      rule: "-j DNAT --to-destination [fd00:1::1]:8080",
      verdict: "accept",
    },
    { place: "inet firewall output", rule: "drop", verdict: "drop" },
    { place: "nat OUTPUT", verdict: "accept" },
  ]);
});

Deno.test("a chain that iptables cannot print whole keeps the words of nft", () => {
  const reader = new RuleListingReader();
  for (const line of LISTING.split("\n")) reader.take(line);
  assertEquals(reader.rules.get("ip6 nat OUTPUT")?.map(({ handle }) => handle), [2, 5]);
  const step = { place: "ip6 nat OUTPUT", rule: "accept", verdict: "accept", handle: 5 };
  const texts = new Map([["nat OUTPUT", ["-j ACCEPT"]]]);
  assertEquals(inWordsOfIptables(step, { listing: reader.rules, texts }), {
    place: "nat OUTPUT",
    rule: "accept",
    verdict: "accept",
  });
});

Deno.test("RuleListingReader takes any text", () => {
  fc.assert(fc.property(fc.array(fc.string()), (lines) => {
    const reader = new RuleListingReader();
    for (const line of lines) reader.take(line);
  }));
});

Deno.test("tellUnknownRules() looks up what the tool knows by number alone", async () => {
  const commands = new FakeCommandRunner().on(`${LIST} KUBE-A`, { stdout: alone(KUBE_A) });
  const known = { place: "ip6 nat OUTPUT", rule: "accept", verdict: "accept" };
  assertEquals(await tellUnknownRules(commands, [known]), [known]);
  assertEquals(commands.calls, []);
  const unknown = { place: "ip6 nat KUBE-A", rule: "rule handle 4", verdict: "accept", handle: 4 };
  const gone = { ...unknown, rule: "rule handle 9", handle: 9 };
  const rules = (await tellUnknownRules(commands, [known, unknown, gone])).map(({ rule }) => rule);
  assertEquals(rules, [
    "accept",
    "dnat to [fd00:1::1]:8080",
    "rule handle 9",
  ]);
});

Deno.test("a chain whose name nft can't read is found in the listing of its table", async () => {
  const odd = LISTING.replace("KUBE-A {", "+A;flush {");
  const commands = new FakeCommandRunner()
    .on(`${LIST} drop`, { code: 1, stderr: "Error: syntax error, unexpected drop" })
    .on("nft -a -t list table ip6 nat", { stdout: odd });
  const listing = await listRules(commands, ["ip6 nat drop", "ip6 nat +A;flush"]);
  assertEquals(listing.get("ip6 nat +A;flush")?.map(({ handle }) => handle), [4]);
  assertEquals(commands.calls.length, 2);
});
