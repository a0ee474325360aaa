/** Random ServicePlans, for property tests of backends. */
import fc from "fast-check";
import { parseCidr } from "../../../lib/net/cidr.ts";
import type { ServicePlan } from "../../../lib/proxy/service_plan.ts";
import { testEndpoint, testForward, testServicePlan } from "./service_plans.ts";

/**
 * A random ServicePlan in 172.30.0.0/24. Few addresses and ports, so that claims collide and prefixes are shared.
 */
export const randomServicePlan: fc.Arbitrary<ServicePlan> = fc.record({
  name: fc.integer({ min: 0, max: 60 }),
  // Mostly the same for one name, as with real Services.
  variant: fc.constantFrom(0, 0, 0, 0, 1),
  port: fc.constantFrom(80, 80, 80, 80, 443),
  nodePort: fc.constantFrom(undefined, 30_080, 30_081, 31_000),
  external: fc.subarray(["192.168.99.1", "192.168.99.2"]),
  vips: fc.subarray(["1.2.3.4"]),
  ranges: fc.constantFrom(undefined, [], ["203.0.113.0/24"]),
  affinity: fc.constantFrom(undefined, undefined, 60),
  isLocalPolicy: fc.boolean(),
  endpoints: fc.constantFrom(0, 0, 1, 2, 3, 4, 6),
  locals: fc.integer({ min: 0, max: 1 }),
}).map((drawn): ServicePlan => {
  const number = 4 * drawn.name + drawn.variant;
  const endpoints = Array.from(
    { length: drawn.endpoints },
    (_, index) =>
      testEndpoint(`10.0.${number}.${index + 1}:8080`, { isLocal: index < drawn.locals }),
  );
  const cluster = endpoints.length > 0 ? { kind: "forward" as const, endpoints } : testForward();
  const local = endpoints.filter(({ isLocal }) => isLocal);
  const external = !drawn.isLocalPolicy
    ? cluster
    : local.length > 0
    ? { kind: "forward" as const, endpoints: local }
    : { kind: endpoints.length > 0 ? "drop" as const : "reject" as const };
  return {
    ...testServicePlan({
      name: String(drawn.name),
      clusterIp: `172.30.0.${number}`,
      port: drawn.port,
      externalIps: drawn.external,
      loadBalancerVips: drawn.vips,
      ...(drawn.nodePort !== undefined && { nodePort: drawn.nodePort }),
    }),
    masqueradeInternal: "off-cluster",
    externalTrafficPolicy: drawn.isLocalPolicy ? "Local" : "Cluster",
    ...(drawn.ranges && { sourceRanges: drawn.ranges.map(parseCidr) }),
    ...(drawn.affinity !== undefined && { affinityTimeoutSeconds: drawn.affinity }),
    internal: cluster,
    external,
    externalFromCluster: cluster,
    reachable: endpoints,
  };
});
