import { assertEquals } from "@std/assert";
import type { NetworkPolicySpec } from "../api/kinds/network_policy.ts";
import { networkPolicy, type Policy } from "./policy.ts";

function policy(spec: NetworkPolicySpec): Policy {
  return networkPolicy({ metadata: { name: "p", namespace: "x" }, spec });
}

const blocks = (count: number) =>
  Array.from({ length: count }, (_, index) => ({
    ipBlock: { cidr: `10.${index >> 7 & 255}.${(index & 127) * 2}.0/24` },
  }));

Deno.test("Policy isolates and allows nothing where a policy has too many parts", () => {
  const { rules, problems } = policy({
    podSelector: {},
    ingress: [{}, { from: blocks(20_000) }],
    egress: [{}],
  });
  assertEquals(rules, { ingress: { IPv4: [], IPv6: [] }, egress: { IPv4: [], IPv6: [] } });
  assertEquals(problems.map(({ path, value }) => `${path} ${value}`), ["spec 20003"]);
});

Deno.test("Policy lets a rule with too many ports match nothing, and reads the others", () => {
  const ports = Array.from({ length: 5_000 }, (_, index) => ({ port: index + 1 }));
  const { rules, problems } = policy({ podSelector: {}, ingress: [{ ports }, { ports: [{}] }] });
  assertEquals(rules.ingress!.IPv4.map(({ index }) => index), [1]);
  assertEquals(problems.map(({ path, value }) => `${path} ${value}`), [
    "spec.ingress[0].ports 5000",
  ]);
});

Deno.test("Policy.knownProblems reads nothing by itself", () => {
  const found = policy({ podSelector: {}, ingress: [{ ports: [{ port: 0 }] }] });
  assertEquals(found.knownProblems, []);
  assertEquals(found.problems.length, 1);
  assertEquals(found.knownProblems, found.problems);
});

const TYPES: readonly { spec: NetworkPolicySpec; isolates: readonly string[] }[] = [
  { spec: {}, isolates: ["ingress"] },
  { spec: { egress: [] }, isolates: ["ingress"] },
  { spec: { egress: [{}] }, isolates: ["ingress", "egress"] },
  { spec: { policyTypes: ["Egress"] }, isolates: ["egress"] },
  { spec: { policyTypes: ["Ingress", "Forward"] }, isolates: ["ingress"] },
  { spec: { policyTypes: ["Forward"] }, isolates: ["ingress", "egress"] },
];

for (const { spec, isolates } of TYPES) {
  Deno.test(`Policy isolates ${isolates.join(" and ")} with ${JSON.stringify(spec)}`, () => {
    assertEquals(Object.keys(policy(spec).rules), isolates);
  });
}
