import { assert, assertStrictEquals } from "@std/assert";
import { podKey, testPod } from "../../tests/support/builders/policy_objects.ts";
import { networkPolicy, type Policy } from "./policy.ts";
import { parsePod } from "./policy_pod.ts";
import { RuleListCache } from "./rule_lists.ts";

function policyOf(name: string, rules: number): Policy {
  const ingress = Array.from({ length: rules }, (_, index) => ({
    from: [{ ipBlock: { cidr: `10.0.${index >> 8}.${index & 255}/32` } }],
  }));
  return networkPolicy({ metadata: { namespace: "x", name }, spec: { podSelector: {}, ingress } });
}

Deno.test("RuleListCache makes equal lists once, and keeps a bounded number of rules", () => {
  const cache = new RuleListCache();
  const pod = parsePod(podKey("x/a"), testPod("x/a", { address: "10.1.0.1" }))!;
  const of = { pod, direction: "ingress", family: "IPv4" } as const;
  const listOf = (policy: Policy) => {
    const needs = cache.needsOf([policy], of);
    return cache.listsOf(needs, [policy], { ...of, mostRules: 5_000 })[0];
  };
  const first = policyOf("first", 4_000);
  const made = listOf(first);
  for (let index = 0; index < 10; index++) listOf(policyOf(`${index}`, 4_000));
  assertStrictEquals(listOf(first), made);
  for (let index = 10; index < 20; index++) listOf(policyOf(`${index}`, 4_000));
  assert(listOf(first) !== made);
});
