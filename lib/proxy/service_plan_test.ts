/** The verdicts and masquerading of plans are held by `tests/packet_flow`. */
import { parseCidr } from "../net/cidr.ts";
import { parseIpAddress } from "../net/ip_address.ts";
import { parsePort } from "../net/port.ts";
import { assertEquals, assertStrictEquals } from "@std/assert";
import { testEndpoint, testServicePort } from "../../tests/support/builders/builders.ts";
import type { ServicePort } from "./service_port.ts";
import { planService, type ServicePlanContext } from "./service_plan.ts";

const CONTEXT: ServicePlanContext = {
  node: { name: "node-a", zone: "zone-a" },
  options: {
    localTraffic: { kind: "byCidr", cidr: parseCidr("10.0.0.0/8") },
    masqueradeAll: false,
  },
};

const LOCAL = testEndpoint("10.180.0.1", { isLocal: true });
const REMOTE = testEndpoint("10.180.1.1");
function accessible(overrides: Partial<ServicePort> = {}): ServicePort {
  return testServicePort({
    nodePort: parsePort(30080),
    externallyAccessible: true,
    ...overrides,
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

Deno.test("planService() shares one list if all endpoints may be picked", () => {
  const endpoints = [LOCAL, REMOTE];
  const plan = planService(accessible(), endpoints, CONTEXT);
  assertStrictEquals(plan.reachable, endpoints);
  assertStrictEquals(plan.endpoints, endpoints);
  assertStrictEquals(plan.internal, plan.external);
});
