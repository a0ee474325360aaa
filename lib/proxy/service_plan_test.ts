import { parseCidr } from "../net/cidr.ts";
import { parseIpAddress } from "../net/ip_address.ts";
import { parsePort } from "../net/port.ts";
import { assertEquals, assertStrictEquals } from "@std/assert";
import { testEndpoint, testServicePort } from "../../tests/support/builders/builders.ts";
import type { Endpoint } from "./endpoint.ts";
import { frontendsOf } from "./frontend.ts";
import type { LocalTrafficDetector } from "./local_traffic.ts";
import type { ServicePort, TrafficPolicy } from "./service_port.ts";
import { planService, type ServicePlan, type ServicePlanContext } from "./service_plan.ts";
import type { Verdict } from "./verdict.ts";

const BY_CIDR: LocalTrafficDetector = { kind: "byCidr", cidr: parseCidr("10.0.0.0/8") };
const NONE: LocalTrafficDetector = { kind: "none" };
const CONTEXT: ServicePlanContext = {
  node: { name: "node-a", zone: "zone-a" },
  options: { localTraffic: BY_CIDR, masqueradeAll: false },
};

const LOCAL = testEndpoint("10.180.0.1", { isLocal: true });
const REMOTE = testEndpoint("10.180.1.1");
const UNREADY = testEndpoint("10.180.1.2", { ready: false, serving: false });

const BOTH = "10.180.0.1:80 10.180.1.1:80";
const HERE = "10.180.0.1:80";
const THERE = "10.180.1.1:80";

function text(verdict: Verdict): string {
  return verdict.kind === "forward"
    ? verdict.endpoints.map(({ key }) => key).join(" ")
    : verdict.kind.toUpperCase();
}

function accessible(overrides: Partial<ServicePort> = {}): ServicePort {
  return testServicePort({
    nodePort: parsePort(30080),
    externallyAccessible: true,
    ...overrides,
  });
}

/** Verdicts for traffic that follow from the lists (control-plane 5.5). */
const VERDICT_ROWS: readonly {
  readonly name: string;
  readonly internal: TrafficPolicy;
  readonly external: TrafficPolicy;
  readonly endpoints: readonly Endpoint[];
  readonly expect: readonly [internal: string, external: string, fromCluster: string];
}[] = [
  {
    name: "refuses everywhere without endpoints, whatever the policies",
    internal: "Local",
    external: "Local",
    endpoints: [],
    expect: ["REJECT", "REJECT", "REJECT"],
  },
  {
    name: "refuses everywhere with unready endpoints only",
    internal: "Cluster",
    external: "Local",
    endpoints: [UNREADY],
    expect: ["REJECT", "REJECT", "REJECT"],
  },
  {
    name: "forwards to all with policies Cluster",
    internal: "Cluster",
    external: "Cluster",
    endpoints: [LOCAL, REMOTE],
    expect: [BOTH, BOTH, BOTH],
  },
  {
    name: "keeps internal traffic on the node with internal policy Local",
    internal: "Local",
    external: "Cluster",
    endpoints: [LOCAL, REMOTE],
    expect: [HERE, BOTH, BOTH],
  },
  {
    name: "drops internal traffic with internal policy Local and endpoints elsewhere",
    internal: "Local",
    external: "Cluster",
    endpoints: [REMOTE],
    expect: ["DROP", THERE, THERE],
  },
  {
    name: "keeps outside traffic on the node with external policy Local, not that of the cluster",
    internal: "Cluster",
    external: "Local",
    endpoints: [LOCAL, REMOTE],
    expect: [BOTH, HERE, BOTH],
  },
  {
    name: "drops outside traffic with external policy Local and endpoints elsewhere",
    internal: "Cluster",
    external: "Local",
    endpoints: [REMOTE],
    expect: [THERE, "DROP", THERE],
  },
  {
    name:
      "drops with both policies Local and endpoints elsewhere, except for the cluster's short cut",
    internal: "Local",
    external: "Local",
    endpoints: [REMOTE],
    expect: ["DROP", "DROP", THERE],
  },
];

for (const { name, internal, external, endpoints, expect } of VERDICT_ROWS) {
  Deno.test(`planService() ${name}`, () => {
    const servicePort = accessible({
      internalTrafficPolicy: internal,
      externalTrafficPolicy: external,
    });
    const plan = planService(servicePort, endpoints, CONTEXT);
    const found = [plan.internal, plan.external, plan.externalFromCluster].map(text);
    assertEquals<readonly string[]>(found, expect);
  });
}

Deno.test("planService() refuses outside traffic to a Service without outside addresses", () => {
  const plan = planService(testServicePort(), [LOCAL, REMOTE], CONTEXT);
  assertEquals(
    [plan.internal, plan.external, plan.externalFromCluster].map(text),
    [BOTH, "REJECT", "REJECT"],
  );
});

/** The masquerade matrix. */
const MASQUERADE_ROWS: readonly {
  readonly localTraffic: LocalTrafficDetector;
  readonly masqueradeAll: boolean;
  readonly external: TrafficPolicy;
  readonly expect: readonly [internal: string, external: string];
}[] = [
  {
    localTraffic: BY_CIDR,
    masqueradeAll: true,
    external: "Cluster",
    expect: ["all", "all"],
  },
  {
    localTraffic: NONE,
    masqueradeAll: true,
    external: "Local",
    expect: ["all", "from-node"],
  },
  {
    localTraffic: BY_CIDR,
    masqueradeAll: false,
    external: "Cluster",
    expect: ["off-cluster", "all"],
  },
  {
    localTraffic: { kind: "byBridge", interfaceName: "cni0" },
    masqueradeAll: false,
    external: "Local",
    expect: ["off-cluster", "from-node"],
  },
  {
    localTraffic: NONE,
    masqueradeAll: false,
    external: "Cluster",
    expect: ["none", "all"],
  },
];

function externalMasquerade(plan: ServicePlan): string {
  const found = frontendsOf(plan).find(({ role }) => role === "NodePort");
  return found?.masquerade ?? "no node port";
}

for (const { localTraffic, masqueradeAll, external, expect } of MASQUERADE_ROWS) {
  const name =
    `detector ${localTraffic.kind}, masqueradeAll ${masqueradeAll}, external ${external}`;
  Deno.test(`planService() masquerades ${expect.join(" and ")}: ${name}`, () => {
    const plan = planService(accessible({ externalTrafficPolicy: external }), [LOCAL], {
      ...CONTEXT,
      options: { localTraffic, masqueradeAll },
    });
    assertEquals<readonly string[]>([plan.masqueradeInternal, externalMasquerade(plan)], expect);
  });
}

Deno.test("planService() hands on every address, and leaves absent values undefined", () => {
  const servicePort = accessible({
    externalIps: [parseIpAddress("192.168.99.11")],
    loadBalancerVips: [parseIpAddress("1.2.3.4")],
    loadBalancerSourceRanges: [parseCidr("203.0.113.0/25")],
    affinityTimeoutSeconds: 60,
    healthCheckNodePort: parsePort(30111),
  });
  const { internal: _internal, external: _external, externalFromCluster: _cluster, ...rest } =
    planService(servicePort, [], CONTEXT);
  assertEquals<unknown>(rest, {
    key: "ns1/web/TCP",
    name: { namespace: "ns1", name: "web", port: "", protocol: "TCP" },
    protocol: "TCP",
    clusterIp: "172.30.0.41",
    port: 80,
    nodePort: 30080,
    externalIps: ["192.168.99.11"],
    loadBalancerVips: ["1.2.3.4"],
    sourceRanges: ["203.0.113.0/25"],
    affinityTimeoutSeconds: 60,
    masqueradeInternal: "off-cluster",
    internalTrafficPolicy: "Cluster",
    externalTrafficPolicy: "Cluster",
    reachable: [],
    endpoints: [],
    healthCheckNodePort: 30111,
  });
  const plain = planService(testServicePort(), [], CONTEXT);
  assertEquals(
    ["nodePort", "sourceRanges", "affinityTimeoutSeconds", "healthCheckNodePort"]
      .filter((field) => field in plain),
    [],
  );
});

Deno.test("planService() keeps closed source ranges closed", () => {
  const plan = planService(accessible({ loadBalancerSourceRanges: [] }), [LOCAL], CONTEXT);
  assertEquals(plan.sourceRanges, []);
});

Deno.test("planService() distinguishes reachable endpoints from known ones", () => {
  const plan = planService(accessible({ externalTrafficPolicy: "Local" }), [
    LOCAL,
    REMOTE,
    UNREADY,
  ], CONTEXT);
  assertEquals(plan.reachable, [LOCAL, REMOTE]);
  assertEquals(plan.endpoints, [LOCAL, REMOTE, UNREADY]);
});

Deno.test("planService() shares one list if all endpoints may be picked", () => {
  const endpoints = [LOCAL, REMOTE];
  const plan = planService(accessible(), endpoints, CONTEXT);
  assertStrictEquals(plan.reachable, endpoints);
  assertStrictEquals(plan.endpoints, endpoints);
  assertStrictEquals(plan.internal, plan.external);
});
