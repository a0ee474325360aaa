import { assertEquals } from "@std/assert";
import type { NetworkPolicySpec } from "../api/kinds/network_policy.ts";
import { parsePolicy, type Policy } from "./policy.ts";

function policy(spec: NetworkPolicySpec): Policy {
  return parsePolicy({ metadata: { name: "p", namespace: "x" }, spec });
}

const blocks = (count: number) =>
  Array.from({ length: count }, (_, index) => ({
    ipBlock: { cidr: `10.${index >> 7 & 255}.${(index & 127) * 2}.0/24` },
  }));

Deno.test("parsePolicy() takes 5,000 blocks as one set", () => {
  const { rules, problems } = policy({ podSelector: {}, ingress: [{ from: blocks(5_000) }] });
  assertEquals(problems, []);
  const [rule] = rules.ingress!.IPv4;
  assertEquals(rule!.peers!.map((peer) => peer.kind === "blocks" && peer.members.size), [5_000]);
  assertEquals(rules.ingress!.IPv6, []);
});

Deno.test("parsePolicy() takes a selector of 1,000 labels", () => {
  const matchLabels = Object.fromEntries(Array.from({ length: 1_000 }, (_, i) => [`l${i}`, "v"]));
  const { podSelector, problems } = policy({ podSelector: { matchLabels } });
  assertEquals(problems, []);
  assertEquals(podSelector.requirements.length, 1_000);
});

Deno.test("parsePolicy() isolates and allows nothing where a policy has too many parts", () => {
  const { rules, problems } = policy({
    podSelector: {},
    ingress: [{}, { from: blocks(20_000) }],
    egress: [{}],
  });
  assertEquals(rules, { ingress: { IPv4: [], IPv6: [] }, egress: { IPv4: [], IPv6: [] } });
  assertEquals(problems.map(({ path, value }) => `${path} ${value}`), ["spec 20003"]);
});

Deno.test("parsePolicy() leaves out blocks beyond a limit, not the other peers and rules", () => {
  // Every second address: each exception is a gap.
  const except = Array.from({ length: 400 }, (_, index) => `fd00:0:${index.toString(16)}::/128`);
  const { rules, problems } = policy({
    podSelector: {},
    ingress: [
      { from: [{ ipBlock: { cidr: "fd00::/16", except } }] },
      { from: [{ podSelector: {} }, { ipBlock: { cidr: "fd00::/16" } }] },
      { from: [{ ipBlock: { cidr: "10.0.0.0/8" } }] },
    ],
  });
  assertEquals(rules.ingress!.IPv6.map(({ peers }) => peers!.map(({ kind }) => kind)), [["pods"]]);
  assertEquals(rules.ingress!.IPv4.map(({ index }) => index), [1, 2]);
  assertEquals(problems.map(({ path }) => path), ["spec.ingress[0].from", "spec.ingress[1].from"]);
});

Deno.test("parsePolicy() merges ports and sorts names", () => {
  const ports = [
    { port: 82 },
    { port: "web" },
    { protocol: "UDP" },
    { port: 80, endPort: 81 },
    { port: "dns", protocol: "UDP" },
    { port: "web", protocol: "TCP" },
  ];
  const [rule] = policy({ podSelector: {}, ingress: [{ ports }] }).rules.ingress!.IPv4;
  assertEquals<unknown>(rule, {
    index: 0,
    ports: [{ protocol: "TCP", from: 80, to: 82 }, { protocol: "UDP", from: 1, to: 65_535 }],
    names: [{ protocol: "TCP", name: "web" }, { protocol: "UDP", name: "dns" }],
  });
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
  Deno.test(`parsePolicy() isolates ${isolates.join(" and ")} with ${JSON.stringify(spec)}`, () => {
    assertEquals(Object.keys(policy(spec).rules), isolates);
  });
}
