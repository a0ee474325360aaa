import { assertEquals } from "@std/assert";
import { parseCidr } from "../../lib/net/cidr.ts";
import type { ExplainedSource } from "../../lib/proxy/packet_explanation.ts";
import { isOfList, type RuleContext, rulesMet } from "./explain_rules.ts";

const LOCAL = [
  "ip saddr 10.0.0.0/8 draw",
  "fib saddr type local mark",
  "fib saddr type local draw",
  "draw",
];

function context(
  who: "pod" | "node" | "outside",
  rewritten: ExplainedSource["rewritten"] = "never",
): RuleContext {
  return {
    explanation: {
      origin: { isFromPod: who === "pod", isFromNode: who === "node" },
      source: { rewritten, reason: "pod" },
    },
    localTraffic: { kind: "byCidr", cidr: parseCidr("10.0.0.0/8") },
    family: "IPv4",
  };
}

for (
  const [who, expected] of [
    ["pod", LOCAL.slice(0, 1)],
    ["node", LOCAL.slice(1, 3)],
    ["outside", LOCAL.slice(3)],
  ] as const
) {
  Deno.test(`rulesMet() of policy Local: ${who}`, () => {
    assertEquals(rulesMet({ treatment: "local" }, LOCAL, context(who)), expected);
  });
}

Deno.test("rulesMet() has the mark where the source changes", () => {
  const rules = ["ip saddr != 10.0.0.0/8 meta mark set 1", "draw"];
  const met = (rewritten: ExplainedSource["rewritten"]) =>
    rulesMet({ treatment: "off-cluster" }, rules, context("outside", rewritten));
  assertEquals([met("always"), met("own-packets")], [rules, ["draw"]]);
  assertEquals(rulesMet({ treatment: "masquerade" }, rules, context("pod")), rules);
});

Deno.test("isOfList() tells the list of clients outside by its numbers", () => {
  const cases = [
    { spec: { local: 1 }, numbers: ["0x80000001", "0x80008001"] },
    { spec: { local: 1, affinitySeconds: 60 }, numbers: ["0xbfff9fff", "0xffff9fff"] },
  ];
  for (const { spec, numbers } of cases) {
    const elements = numbers.map((number) => ({ key: `10.96.0.1 . tcp . 80 . ${number}` }));
    const areOf = (kind: "outside" | "pod") =>
      elements.map((element) => isOfList(spec, element, context(kind)));
    assertEquals([areOf("pod"), areOf("outside")], [[true, false], [false, true]]);
    assertEquals(isOfList({}, elements[1]!, context("pod")), true);
  }
});
