import { assertEquals } from "@std/assert";
import { readManifest, readOneManifest } from "../../../tests/support/builders/manifest_reading.ts";
import { textRows } from "../../../tests/support/texts/text_rows.ts";
import type { KubeObject } from "../kind.ts";
import type { NetworkPolicy } from "./network_policy.ts";

/** A NetworkPolicy `default/web` with this spec, which stands in line 5. */
function policyText(spec: string): string {
  return `apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata:\n  name: web\nspec: ${spec}\n`;
}

const TYPES: readonly { spec: string; types: readonly string[] }[] = [
  { spec: "{podSelector: {}}", types: ["Ingress"] },
  { spec: "{podSelector: {}, egress: []}", types: ["Ingress"] },
  { spec: "{podSelector: {}, egress: [{}]}", types: ["Ingress", "Egress"] },
  { spec: "{podSelector: {}, policyTypes: [], egress: [{}]}", types: ["Ingress", "Egress"] },
  { spec: "{podSelector: {}, policyTypes: [Egress], ingress: [{}]}", types: ["Egress"] },
];

for (const { spec, types } of TYPES) {
  Deno.test(`completeNetworkPolicy() makes the types ${types} of ${spec}`, () => {
    const { spec: found } = readOneManifest(policyText(spec)) as NetworkPolicy;
    assertEquals(found.policyTypes, types);
  });
}

Deno.test("completeNetworkPolicy() keeps empty selectors, rules and lists apart from absent ones", () => {
  const text = policyText(
    "{ingress: [{}, {from: [{podSelector: {}}, {namespaceSelector: {}, podSelector: {matchLabels: {a: b}}}]," +
      " ports: [{}, {port: http, protocol: UDP}, {port: 80, endPort: 81}]}], egress: []}",
  );
  assertEquals<KubeObject>(readOneManifest(text), {
    metadata: { name: "web", namespace: "default" },
    spec: {
      podSelector: {},
      policyTypes: ["Ingress"],
      ingress: [{}, {
        from: [
          { podSelector: {} },
          { podSelector: { matchLabels: { a: "b" } }, namespaceSelector: {} },
        ],
        ports: [
          { protocol: "TCP" },
          { port: "http", protocol: "UDP" },
          { port: 80, protocol: "TCP", endPort: 81 },
        ],
      }],
      egress: [],
    },
  } as NetworkPolicy);
});

const REFUSED = `
an endPort without a port
  {egress: [{ports: [{endPort: 90}]}]}
  spec.egress[0].ports[0].endPort is 90: needs a port number in port
an endPort with the name of a port
  {egress: [{ports: [{port: http, endPort: 90}]}]}
  spec.egress[0].ports[0].endPort is 90: needs a port number in port
an endPort below the port
  {ingress: [{ports: [{port: 91, endPort: 90}]}]}
  spec.ingress[0].ports[0].endPort is 90: has to be 91 or more, as port is
a port that is none
  {ingress: [{ports: [{port: 70000}]}]}
  spec.ingress[0].ports[0].port is 70000: has to be a whole number between 1 and 65535
a protocol that is none
  {ingress: [{ports: [{protocol: ICMP}]}]}
  spec.ingress[0].ports[0].protocol is "ICMP": has to be TCP, UDP, SCTP, in capitals
a peer that is nothing
  {ingress: [{from: [{}]}]}
  spec.ingress[0].from[0]: has to hold podSelector, namespaceSelector or ipBlock
a block with a selector
  {egress: [{to: [{podSelector: {}, ipBlock: {cidr: 10.0.0.0/8}}]}]}
  spec.egress[0].to[0].ipBlock: cannot be combined with podSelector or namespaceSelector: use another entry
an exception outside of its block
  {egress: [{to: [{ipBlock: {cidr: 10.0.0.0/8, except: [11.0.0.0/16]}}]}]}
  spec.egress[0].to[0].ipBlock.except[0] is "11.0.0.0/16": has to lie within cidr, 10.0.0.0/8, and be smaller
an exception of the whole block
  {egress: [{to: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.0.0.0/8]}}]}]}
  spec.egress[0].to[0].ipBlock.except[0] is "10.0.0.0/8": has to lie within cidr, 10.0.0.0/8, and be smaller
an exception of the other family
  {egress: [{to: [{ipBlock: {cidr: 10.0.0.0/8, except: ['fd00::/8']}}]}]}
  spec.egress[0].to[0].ipBlock.except[0] is "fd00::/8": has to lie within cidr, 10.0.0.0/8, and be smaller
an operator that is none
  {podSelector: {matchExpressions: [{key: a, operator: Gt, values: ['1']}]}}
  spec.podSelector.matchExpressions[0].operator is "Gt": has to be In, NotIn, Exists or DoesNotExist
In without values
  {podSelector: {matchExpressions: [{key: a, operator: In}]}}
  spec.podSelector.matchExpressions[0].values: is missing: In needs it
Exists with values
  {podSelector: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}}
  spec.podSelector.matchExpressions[0].values: cannot stand with Exists
a block without addresses
  {ingress: [{from: [{ipBlock: {except: [10.0.0.0/8]}}]}]}
  spec.ingress[0].from[0].ipBlock.cidr: is missing
an expression without an operator
  {podSelector: {matchExpressions: [{key: a}]}}
  spec.podSelector.matchExpressions[0].operator: is missing
a label with a space
  {podSelector: {matchLabels: {a: b c}}}
  spec.podSelector.matchLabels.a is "b c": has to be the value of a label: empty, or at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends
three policy types
  {policyTypes: [Ingress, Egress, Ingress]}
  spec.policyTypes is ["Ingress","Egress","Ingress"]: has to hold Ingress, Egress or both, each once
a policy type that is none
  {policyTypes: [Ingres]}
  spec.policyTypes[0] is "Ingres": has to be Ingress or Egress
`;

for (const [what, spec, problem] of textRows(REFUSED)) {
  Deno.test(`completeNetworkPolicy() refuses ${what}`, () => {
    const { content, problems } = readManifest(policyText(spec!));
    assertEquals(problems.map((text) => text.replace(/^.*?web: /, "")), [problem]);
    assertEquals([content.objects.size, content.refused.size], [0, 1]);
  });
}

Deno.test("a field that only a newer API knows is reported, and its name is kept", () => {
  const text = policyText("{ingress: [{from: [{podSelector: {}, nodeSelector: {a: b}}]}]}");
  const { objects, problems } = readManifest(text);
  assertEquals(problems.length, 1);
  const [policy] = objects as NetworkPolicy[];
  assertEquals(policy?.spec.ingress?.[0]?.from, [
    { podSelector: {}, unknownFields: ["nodeSelector"] },
  ]);
});

Deno.test("a Pod of a cluster is reduced to the fields of policies, without messages about the rest", () => {
  const text = `
apiVersion: v1
kind: Pod
metadata: {name: web-0, namespace: x, labels: {app: web, tier: front}, ownerReferences: [{kind: X}]}
spec:
  nodeName: n1
  serviceAccountName: default
  containers:
  - {name: a, image: a, ports: [{name: http, containerPort: 80, hostPort: 80}], env: [{name: A}]}
  initContainers:
  - {name: b, restartPolicy: Always, ports: [{name: mesh, containerPort: 15000, protocol: UDP}]}
status: {phase: Running, podIP: 10.1.0.5, hostIP: 192.0.2.1, conditions: [{type: Ready}]}
`;
  assertEquals<unknown>(readOneManifest(text), {
    metadata: { name: "web-0", namespace: "x", labels: { app: "web", tier: "front" } },
    spec: {
      nodeName: "n1",
      containers: [{ ports: [{ name: "http", containerPort: 80 }] }],
      initContainers: [{
        restartPolicy: "Always",
        ports: [{ name: "mesh", containerPort: 15000, protocol: "UDP" }],
      }],
    },
    status: { phase: "Running", podIP: "10.1.0.5", podIPs: [{ ip: "10.1.0.5" }] },
  });
});

Deno.test("a Namespace has the label with its name, whatever its manifest says", () => {
  const text = "apiVersion: v1\nkind: Namespace\nmetadata: {name: x, labels: {a: b, " +
    "kubernetes.io/metadata.name: y}}\nspec: {finalizers: [kubernetes]}\n";
  assertEquals<unknown>(readOneManifest(text), {
    metadata: { name: "x", labels: { a: "b", "kubernetes.io/metadata.name": "x" } },
  });
});
