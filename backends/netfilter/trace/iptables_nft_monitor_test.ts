import { assert, assertEquals } from "@std/assert";
import fc from "fast-check";
import { FakeCommandRunner } from "../../../tests/support/fakes/fake_command_runner.ts";
import {
  inWordsOfIptables,
  iptablesNftMonitor,
  readIptablesTexts,
} from "./iptables_nft_monitor.ts";
import { listChains, listRulesets, lookUpUnknownRules, RuleListingReader } from "./rule_listing.ts";

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

const OPTIONS = {
  family: "IPv6",
  table: "kube-relay-trace-7",
  save: "ip6tables-nft-save",
} as const;

/** One chain as nft prints it alone: the table has no number then. */
function alone(chain: string): string {
  return `${WARNING}table ip6 nat {\n${chain}}\n`;
}

Deno.test("a step of iptables-nft is described in the words of iptables", async () => {
  const commands = new FakeCommandRunner()
    .on(`${LIST} OUTPUT`, { stdout: alone(OUTPUT) })
    .on(`${LIST} KUBE-A`, { stdout: alone(KUBE_A) })
    .on("nft -a -t list chain inet firewall input", {
      stdout: "table inet firewall {\n\tchain input { # handle 1\n\t\treject # handle 6\n\t}\n}\n",
    })
    .on("ip6tables-nft -t nat -S OUTPUT", {
      stdout: "-P OUTPUT ACCEPT\n" +
        "-A OUTPUT -d fd00:2::8/128 -p tcp -m tcp --dport 80 -j ACCEPT\n" +
        "-A OUTPUT -d fd00:2::9/128 -p tcp -m tcp --dport 80 -m comment --comment hello -j KUBE-A\n",
    })
    .on("ip6tables-nft -t nat -S KUBE-A", {
      stdout: "-N KUBE-A\n-A KUBE-A -j DNAT --to-destination [fd00:1::1]:8080\n",
    });
  const { finish } = iptablesNftMonitor({ commands }, OPTIONS);
  const steps = await finish?.([
    { place: "ip6 nat OUTPUT", rule: "ip6 daddr …", verdict: "jump KUBE-A", handle: 5 },
    { place: "ip6 nat KUBE-A", rule: "dnat …", verdict: "accept", handle: 4 },
    { place: "inet firewall output", rule: "drop", verdict: "drop", handle: 2 },
    { place: "inet firewall input", rule: "rule handle 6", verdict: "drop", handle: 6 },
    { place: "ip6 nat OUTPUT", verdict: "accept" },
  ]);
  // For foreign tables, only rules that the monitor could not print are queried.
  assert(!commands.calls.some(({ line }) => line.endsWith("firewall output")));
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
    { place: "inet firewall input", rule: "reject", verdict: "drop" },
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

Deno.test("RuleListingReader accepts any text", () => {
  fc.assert(fc.property(fc.array(fc.string()), (lines) => {
    const reader = new RuleListingReader();
    for (const line of lines) reader.take(line);
  }));
});

Deno.test("lookUpUnknownRules() looks up rules that the tool knows by number only", async () => {
  const commands = new FakeCommandRunner().on(`${LIST} KUBE-A`, { stdout: alone(KUBE_A) });
  const list = (chains: Iterable<string>) => listChains(commands, chains);
  const known = { place: "ip6 nat OUTPUT", rule: "accept", verdict: "accept" };
  assertEquals(await lookUpUnknownRules([known], list), [known]);
  assertEquals(commands.calls, []);
  const unknown = { place: "ip6 nat KUBE-A", rule: "rule handle 4", verdict: "accept", handle: 4 };
  const gone = { ...unknown, rule: "rule handle 9", handle: 9 };
  const rules = (await lookUpUnknownRules([known, unknown, gone], list)).map(({ rule }) => rule);
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
  const listing = await listChains(commands, ["ip6 nat drop", "ip6 nat +A;flush"]);
  assertEquals(listing.get("ip6 nat +A;flush")?.map(({ handle }) => handle), [4]);
  assertEquals(commands.calls.length, 2);
});

Deno.test("listRulesets() asks once for each family, and for no element", async () => {
  const commands = new FakeCommandRunner()
    .on("nft -a -t list ruleset inet", { stdout: "" })
    .on("nft -a -t list ruleset ip6", { stdout: LISTING });
  const places = ["ip6 nat OUTPUT", "ip6 nat KUBE-A", "inet firewall output"];
  const listing = await listRulesets(commands, places);
  assertEquals(listing.get("ip6 nat KUBE-A")?.map(({ handle }) => handle), [4]);
  assertEquals(commands.calls.map(({ line }) => line), [
    "nft -a -t list ruleset ip6",
    "nft -a -t list ruleset inet",
  ]);
});

const SAVE = "iptables-nft-save";

Deno.test("readIptablesTexts() asks for the named chains only", async () => {
  const commands = new FakeCommandRunner()
    .on("iptables-nft -t nat -S OUTPUT", {
      stdout: '-P OUTPUT ACCEPT\n-A OUTPUT -m comment --comment "to all" -j KUBE-A\n-A OUTPUT\n',
    })
    .on("iptables-nft -t filter -S KUBE-B", { stdout: "-N KUBE-B\n" });
  const chains = ["nat OUTPUT", "filter KUBE-B"];
  assertEquals([...await readIptablesTexts(commands, { save: SAVE, chains })], [
    ["nat OUTPUT", ['-m comment --comment "to all" -j KUBE-A', ""]],
    ["filter KUBE-B", []],
  ]);
});

Deno.test("readIptablesTexts() reads everything if a chain is refused", async () => {
  const commands = new FakeCommandRunner()
    .on("iptables-nft -t nat -S KUBE-A", { code: 1, stderr: "incompatible" })
    .on(SAVE, {
      stdout: "*nat\n:KUBE-A - [0:0]\n-A KUBE-A -j DROP\nCOMMIT\n*raw\n-A OUTPUT -j CT\n",
    });
  assertEquals([...await readIptablesTexts(commands, { save: SAVE, chains: ["nat KUBE-A"] })], [
    ["nat KUBE-A", ["-j DROP"]],
    ["raw OUTPUT", ["-j CT"]],
  ]);
});
