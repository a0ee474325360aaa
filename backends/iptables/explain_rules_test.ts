import { assertEquals } from "@std/assert";
import { parseIpAddress } from "../../lib/net/ip_address.ts";
import { type RuleContext, rulesMet } from "./explain_rules.ts";

const RULES = [
  "-s 10.0.0.0/8 -j KUBE-SVC-A",
  "-m addrtype --src-type LOCAL -j KUBE-MARK-MASQ",
  "-m addrtype --src-type LOCAL -j KUBE-SVC-A",
  "-p tcp -m statistic --mode random --probability 0.5 -j DNAT --to-destination 10.0.0.1:80",
  "-p tcp -j DNAT --to-destination 10.0.0.2:80",
  "-j NEVER",
];

function from(
  address: string,
  { isFromPod = false, isFromNode = false, interfaceName }: {
    readonly isFromPod?: boolean;
    readonly isFromNode?: boolean;
    readonly interfaceName?: string;
  } = {},
): RuleContext {
  return {
    sender: {
      kind: "pod",
      address: parseIpAddress(address),
      ...(interfaceName !== undefined && { interfaceName }),
    },
    origin: { isFromPod, isFromNode },
  };
}

for (
  const [name, context, expected] of [
    ["a pod", from("10.1.2.3", { isFromPod: true }), [0]],
    ["the node", from("192.0.2.1", { isFromNode: true }), [1, 2]],
    ["outside", from("192.0.2.1"), [3, 4]],
  ] as const
) {
  Deno.test(`rulesMet() of a packet from ${name}`, () => {
    assertEquals(rulesMet(RULES, context), expected.map((index) => RULES[index] ?? ""));
  });
}

for (
  const [rule, context, expected] of [
    ["! -s 10.0.0.0/8 -j X", from("10.1.2.3"), false],
    ["! -s 10.0.0.0/8 -j X", from("192.0.2.1"), true],
    ["-d 10.1.2.3 -s 10.1.2.3 -j X", from("10.1.2.3"), true],
    ["-s fd00::/64 -j X", from("fd00::1"), true],
    ["-i cni0 -j X", from("10.1.2.3", { interfaceName: "cni0" }), true],
    ["-i cni0 -j X", from("10.1.2.3"), false],
    ["! -i cni+ -j X", from("10.1.2.3", { interfaceName: "cni7" }), false],
    ["! -i cni+ -j X", from("10.1.2.3"), true],
  ] as const
) {
  Deno.test(`rulesMet() with '${rule}' from ${JSON.stringify(context.sender)}`, () => {
    assertEquals(rulesMet([rule], context), expected ? [rule] : []);
  });
}
