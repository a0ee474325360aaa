import { assertEquals } from "@std/assert";
import { parseCidr } from "../../../lib/net/cidr.ts";
import { parseIpAddress } from "../../../lib/net/ip_address.ts";
import { chainLine, quoteWord, type Rule, ruleText } from "./iptables_objects.ts";

Deno.test("quoteWord() leaves plain words alone and quotes all others", () => {
  const words = [
    ["KUBE-SVC-AQI2S6QIMU7PVVRP", "KUBE-SVC-AQI2S6QIMU7PVVRP"],
    ["[fd00::2]:80", "[fd00::2]:80"],
    ["0x00004000/0x00004000", "0x00004000/0x00004000"],
    ["", '""'],
    ["two words", '"two words"'],
    ['a "b" \\c', '"a \\"b\\" \\\\c"'],
    ["x\nCOMMIT\n*nat", '"x?COMMIT?*nat"'],
    ["tab\tand \x00", '"tab?and ?"'],
    ["#comment", '"#comment"'],
    ["'; reboot", '"\'; reboot"'],
    ["größe", '"gr??e"'],
  ] as const;
  for (const [word, quoted] of words) assertEquals(quoteWord(word), quoted);
});

Deno.test("ruleText() spells every part of a rule", () => {
  const vip = { value: parseIpAddress("10.0.0.1") };
  const rules: readonly (readonly [Rule, string])[] = [
    [{}, ""],
    [
      { destination: vip, protocol: "TCP", destinationPorts: { first: 80, last: 80 } },
      "-d 10.0.0.1 -m tcp -p tcp --dport 80",
    ],
    [
      { protocol: "SCTP", destinationPorts: { first: 0, last: 4095 }, target: ["X"], isGoto: true },
      "-m sctp -p sctp --dport 0:4095 -g X",
    ],
    [{ destination: vip, protocol: "UDP", target: ["X"] }, "-d 10.0.0.1 -p udp -j X"],
    [
      {
        source: { value: parseCidr("10.0.0.0/8"), not: true },
        inInterface: { value: "cni+", not: true },
        target: ["DNAT", "--to-destination", "[fd00::1]:80"],
      },
      "! -s 10.0.0.0/8 ! -i cni+ -j DNAT --to-destination [fd00::1]:80",
    ],
    [
      { extensions: [["addrtype", "--dst-type", "LOCAL"]], comment: 'ns/"a"', target: ["DROP"] },
      '-m addrtype --dst-type LOCAL -m comment --comment "ns/\\"a\\"" -j DROP',
    ],
  ];
  for (const [rule, text] of rules) assertEquals(ruleText(rule), text);
});

Deno.test("ruleText() shortens a comment to the kernel's limit", () => {
  assertEquals(ruleText({ comment: "x".repeat(300) }), `-m comment --comment ${"x".repeat(255)}`);
});

Deno.test("chainLine() resets a chain", () => {
  assertEquals(chainLine("KUBE-SERVICES"), ":KUBE-SERVICES - [0:0]");
});
