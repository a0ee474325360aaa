import { assertEquals, assertStrictEquals } from "@std/assert";
import fc from "fast-check";
import type { KindSpec, KubeObject } from "../api/kind.ts";
import { ENDPOINT_SLICE } from "../api/kinds/endpoint_slice.ts";
import { ENDPOINTS } from "../api/kinds/endpoints.ts";
import { NETWORK_POLICY } from "../api/kinds/network_policy.ts";
import { LEASE } from "../api/kinds/lease.ts";
import { NODE } from "../api/kinds/node.ts";
import { ROUTED_NODE } from "../api/kinds/routed_node.ts";
import { ROUTED_SERVICE } from "../api/kinds/routed_service.ts";
import { SERVICE } from "../api/kinds/service.ts";
import { SERVICE_CIDR } from "../api/kinds/service_cidr.ts";
import { SERVICE_KINDS } from "../app/service/service_subscriptions.ts";
import type { ObjectProblem } from "../api/problem.ts";
import { networkPolicy } from "../policy/policy.ts";
import { slimObject } from "./slim.ts";
import { StringTable } from "./string_table.ts";

/** Every object and problem that one raw object gives. */
function slim<T extends KubeObject>(spec: KindSpec<T>, raw: unknown) {
  const problems: ObjectProblem[] = [];
  const object = slimObject(spec, raw, {
    strings: new StringTable(),
    onProblem: (problem) => problems.push(problem),
  });
  return { object, problems };
}

const METADATA = {
  name: "web",
  namespace: "shop",
  resourceVersion: "42",
  creationTimestamp: "2026-01-01T00:00:00Z",
};
const { namespace: _, ...NODE_METADATA } = METADATA;

/** The maps of which everything is kept, if the kind has them. */
type Whole = readonly ("labels" | "selector")[];

/** Kinds, what is kept of an object, and which maps are kept whole. */
const KEPT: readonly (readonly [name: string, spec: KindSpec, kept: object, whole?: Whole])[] = [
  ["a Service", SERVICE, {
    metadata: { ...METADATA, uid: "u" },
    spec: {
      type: "LoadBalancer",
      clusterIP: "10.96.0.10",
      clusterIPs: ["10.96.0.10", "fd00::a"],
      ipFamilies: ["IPv4", "IPv6"],
      externalIPs: ["192.0.2.1"],
      externalTrafficPolicy: "Local",
      internalTrafficPolicy: "Cluster",
      healthCheckNodePort: 30000,
      loadBalancerSourceRanges: ["10.0.0.0/8"],
      sessionAffinity: "ClientIP",
      sessionAffinityConfig: { clientIP: { timeoutSeconds: 10800 } },
      ports: [{ name: "http", protocol: "TCP", port: 80, nodePort: 30080 }],
    },
    status: { loadBalancer: { ingress: [{ ip: "192.0.2.9", ipMode: "VIP" }] } },
  }],
  ["an EndpointSlice", ENDPOINT_SLICE, {
    metadata: {
      ...METADATA,
      labels: { "kubernetes.io/service-name": "web" },
      annotations: { "endpoints.kubernetes.io/last-change-trigger-time": "2026-01-01T00:00:00Z" },
    },
    addressType: "IPv4",
    endpoints: [{
      addresses: ["10.1.0.1"],
      conditions: { ready: true, serving: true, terminating: false },
      nodeName: "node-1",
      hints: { forZones: [{ name: "a" }], forNodes: [{ name: "node-1" }] },
    }, { addresses: ["10.1.0.2"] }],
    ports: [{ name: "", protocol: "TCP", port: 8080 }, {}],
  }],
  ["Endpoints", ENDPOINTS, {
    metadata: {
      ...METADATA,
      labels: { "endpointslice.kubernetes.io/skip-mirror": "true" },
      annotations: { "endpoints.kubernetes.io/over-capacity": "truncated" },
    },
    subsets: [{
      addresses: [{ ip: "10.1.0.1", nodeName: "node-1" }],
      notReadyAddresses: [{ ip: "10.1.0.2" }],
      ports: [{ name: "http", protocol: "TCP", port: 80 }],
    }],
  }],
  ["a Node", NODE, {
    metadata: {
      ...NODE_METADATA,
      uid: "u",
      labels: { "topology.kubernetes.io/zone": "a" },
      annotations: { "k3s.io/node-args": '["server"]' },
    },
    spec: {
      podCIDR: "10.1.0.0/24",
      podCIDRs: ["10.1.0.0/24"],
      taints: [{ key: "ToBeDeletedByClusterAutoscaler", effect: "NoSchedule" }],
    },
    status: { addresses: [{ type: "InternalIP", address: "192.0.2.1" }] },
  }, ["labels"]],
  ["a Node that announces", ROUTED_NODE, {
    metadata: {
      name: "node-1",
      labels: { "node.kubernetes.io/exclude-from-external-load-balancers": "" },
      annotations: {
        "kube-router.io/node.asn": "64512",
        "kube-router.io/peers": "[]",
        "kube-router.io/peer.ips": "192.0.2.9",
        "kube-router.io/peer.passwords": "c2VjcmV0",
      },
    },
    spec: {
      podCIDR: "10.1.0.0/24",
      podCIDRs: ["10.1.0.0/24"],
      taints: [{ key: "node.kubernetes.io/out-of-service", effect: "NoExecute" }],
    },
    status: { addresses: [{ type: "InternalIP", address: "192.0.2.1" }] },
  }, ["labels"]],
  ["a Service that is assigned addresses", ROUTED_SERVICE, {
    metadata: {
      name: "web",
      namespace: "default",
      uid: "u",
      labels: { team: "web" },
      annotations: {
        "kube-relay.io/load-balancer-ips": "192.0.2.1",
        "kube-relay.io/sni": "shop.example.com",
      },
    },
    spec: {
      type: "LoadBalancer",
      loadBalancerClass: "kube-relay.io/load-balancer",
      ipFamilies: ["IPv4"],
      ipFamilyPolicy: "SingleStack",
      externalTrafficPolicy: "Local",
      selector: { app: "web" },
      ports: [{ protocol: "TCP", port: 80 }],
    },
    status: { loadBalancer: { ingress: [{ ip: "192.0.2.1" }, { hostname: "web.example" }] } },
  }, ["labels", "selector"]],
  ["a Lease", LEASE, {
    metadata: { name: "node-1", namespace: "kube-system", resourceVersion: "7" },
    spec: {
      holderIdentity: "",
      leaseDurationSeconds: 3,
      acquireTime: "2026-01-01T00:00:00.000000Z",
      renewTime: "2026-01-01T00:00:01.000000Z",
      leaseTransitions: 1,
    },
  }],
  ["a ServiceCIDR", SERVICE_CIDR, {
    metadata: { name: "kubernetes" },
    spec: { cidrs: ["10.96.0.0/12", "fd00::/112"] },
  }],
];

/** Adds a field that no kind has to every object of a value. */
function withNoise(value: unknown, whole: readonly string[]): unknown {
  if (Array.isArray(value)) return value.map((item) => withNoise(item, whole));
  if (typeof value !== "object" || value === null) return value;
  const entries = Object.entries(value).map(([name, each]) =>
    [name, whole.includes(name) ? each : withNoise(each, whole)] as const
  );
  return { ...Object.fromEntries(entries), unheardOf: "x" };
}

for (const [name, spec, kept, whole = []] of KEPT) {
  Deno.test(`slimObject() keeps the read fields of ${name} and nothing else`, () => {
    const { object, problems } = slim(spec, withNoise(kept, whole));
    assertEquals<unknown>([object, problems], [kept, []]);
  });
}

Deno.test("slimObject() leaves out absent, null and empty fields", () => {
  const { object } = slim(SERVICE, {
    metadata: { name: "web", labels: null, annotations: {} },
    spec: { clusterIP: "None", ports: null, externalIPs: null },
    status: { loadBalancer: {} },
  });
  assertEquals(object, { metadata: { name: "web" }, spec: { clusterIP: "None" } });
  const raw = { metadata: { name: "web" }, addressType: "IPv6", endpoints: null, ports: null };
  const slice = slim(ENDPOINT_SLICE, raw);
  assertEquals(slice.object, { ...raw, endpoints: [], ports: [] });
});

for (
  const [kind, raw, object, path] of [
    [SERVICE, { metadata: { name: "a" } }, "a", "spec"],
    [SERVICE, { metadata: { name: 5 }, spec: {} }, "(no name)", "metadata.name"],
    [SERVICE, { spec: {} }, "(no name)", "metadata"],
    [SERVICE, null, "(no name)", ""],
    [
      SERVICE,
      { metadata: { name: "a", namespace: "n" }, spec: { ports: [{ port: 80 }, { port: "80" }] } },
      "n/a",
      "spec.ports[1].port",
    ],
    [
      ENDPOINT_SLICE,
      { metadata: { name: "a" }, addressType: "IPv4", endpoints: [{ addresses: ["10.1.0.1", 7] }] },
      "a",
      "endpoints[0].addresses[1]",
    ],
    [ENDPOINTS, { metadata: { name: "a" }, subsets: {} }, "a", "subsets"],
    [NODE, { metadata: { name: "a", labels: "x" } }, "a", "metadata.labels"],
    [
      SERVICE_CIDR,
      { metadata: { name: "a" }, spec: { cidrs: "10.96.0.0/12" } },
      "a",
      "spec.cidrs",
    ],
  ] as readonly (readonly [KindSpec, unknown, string, string])[]
) {
  Deno.test(`slimObject() leaves out a ${kind.kind} whose '${path}' is wrong, and reports it`, () => {
    const result = slim(kind, raw);
    assertStrictEquals(result.object, undefined);
    assertEquals(result.problems.map((problem) => [problem.kind, problem.object, problem.path]), [
      [kind.kind, object, path],
    ]);
  });
}

Deno.test("slimObject() never throws, whatever the object is", () => {
  fc.assert(fc.property(fc.constantFrom(...SERVICE_KINDS), fc.jsonValue(), (kind, raw) => {
    const { object, problems } = slim(kind, raw);
    assertEquals(problems.length, object === undefined ? 1 : 0);
  }));
});

Deno.test("slimObject() leaves fields of wrong types out of a NetworkPolicy, and names them", () => {
  const { object, problems } = slim(NETWORK_POLICY, {
    metadata: { name: "p", namespace: "x" },
    spec: {
      podSelector: { matchLabels: { app: 5 } },
      policyTypes: ["Ingress"],
      ingress: [{ from: [5, {}], ports: [{ port: 80, protocol: [] }] }],
      egress: "all",
      later: 1,
    },
  });
  assertEquals<unknown>(object?.spec, {
    podSelector: { unknownFields: ["matchLabels"] },
    policyTypes: ["Ingress"],
    ingress: [{
      from: [{ unknownFields: [] }, {}],
      ports: [{ port: 80, unknownFields: ["protocol"] }],
    }],
    unknownFields: ["egress", "later"],
  });
  assertEquals(problems.map(({ path, value }) => `${path} ${value}`), [
    "spec.podSelector.matchLabels.app 5",
    "spec.ingress[0].from[0] 5",
    "spec.ingress[0].ports[0].protocol []",
    'spec.egress "all"',
  ]);
});

Deno.test("slimObject() identifies every NetworkPolicy that has a name", () => {
  const metadata = fc.constant({ name: "p", namespace: "x" });
  const field = fc.jsonValue({ maxDepth: 4 });
  const spec = fc.oneof(
    field,
    fc.record({ podSelector: field, policyTypes: field, ingress: field, egress: fc.array(field) }),
  );
  fc.assert(fc.property(fc.record({ metadata, spec }), (raw) => {
    const { object } = slim(NETWORK_POLICY, raw);
    assertEquals(object?.metadata, raw.metadata);
    const policy = networkPolicy(object!);
    assertEquals(Object.keys(policy.rules).length > 0, true);
  }));
});

Deno.test("slimObject() never throws for objects that are nearly right", () => {
  const field = fc.jsonValue({ maxDepth: 2 });
  const raw = fc.record({
    metadata: fc.record({ name: fc.constant("a"), labels: field }, { requiredKeys: ["name"] }),
    spec: fc.record({ ports: field, clusterIPs: field, taints: field, cidrs: field }, {
      requiredKeys: [],
    }),
    status: field,
    addressType: field,
    endpoints: fc.array(fc.record({ addresses: field, conditions: field, hints: field })),
    ports: field,
    subsets: field,
  }, { requiredKeys: [] });
  fc.assert(fc.property(fc.constantFrom(...SERVICE_KINDS), raw, (kind, raw) => {
    const { object, problems } = slim(kind, raw);
    assertEquals(problems.length, object === undefined ? 1 : 0);
  }));
});

Deno.test("slimObject() keeps one object for each combination of conditions", () => {
  const values = [undefined, false, true];
  const raws = values.flatMap((ready) =>
    values.flatMap((serving) => values.map((terminating) => ({ ready, serving, terminating })))
  );
  const read = (conditions: unknown) => {
    const endpoints = [{ addresses: ["10.1.0.1"], conditions }];
    const raw = { metadata: { name: "web" }, addressType: "IPv4", endpoints };
    return slim(ENDPOINT_SLICE, raw).object!.endpoints[0]!.conditions;
  };
  for (const raw of raws) {
    assertEquals({ ...raw, ...read(raw) }, raw);
    assertStrictEquals(read({ ...raw }), read(raw));
  }
  assertEquals(new Set(raws.map(read)).size, 27);
});
