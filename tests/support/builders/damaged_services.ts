/** Services that between them need every kind of object of a mode, for tests that damage them. */
import { parseCidr } from "../../../lib/net/cidr.ts";
import type { ServicePlan } from "../../../lib/proxy/service_plan.ts";
import { testEndpoint, testServicePlan } from "./service_plans.ts";

/** The number of neighbours: enough that chains are split by prefix. */
const NEIGHBOURS = 24;

/** All of them. */
export function damagedServices(): readonly ServicePlan[] {
  const local = testEndpoint("10.1.0.9:8080", { isLocal: true });
  return [
    testServicePlan({
      name: "web",
      clusterIp: "172.30.0.1",
      nodePort: 30_080,
      masqueradeInternal: "off-cluster",
      to: ["10.1.0.1:8080", "10.1.0.2:8080", "10.1.0.3:8080"],
    }),
    testServicePlan({
      name: "sticky",
      clusterIp: "172.30.0.2",
      affinityTimeoutSeconds: 60,
      masqueradeInternal: "off-cluster",
      to: ["10.1.0.4:8080", "10.1.0.5:8080"],
    }),
    testServicePlan({
      name: "guarded",
      clusterIp: "172.30.0.3",
      loadBalancerVips: ["192.0.2.3"],
      sourceRanges: [parseCidr("203.0.113.0/24"), parseCidr("198.51.100.7/32")],
      masqueradeInternal: "off-cluster",
      to: ["10.1.0.6:8080"],
    }),
    testServicePlan({
      name: "empty",
      clusterIp: "172.30.0.4",
      externalIps: ["192.0.2.4"],
      nodePort: 30_084,
    }),
    {
      ...testServicePlan({ name: "local", clusterIp: "172.30.0.5", nodePort: 30_085 }),
      masqueradeInternal: "off-cluster" as const,
      externalTrafficPolicy: "Local" as const,
      internal: { kind: "forward" as const, endpoints: [local, testEndpoint("10.2.0.9:8080")] },
      external: { kind: "forward" as const, endpoints: [local] },
      externalFromCluster: {
        kind: "forward" as const,
        endpoints: [local, testEndpoint("10.2.0.9:8080")],
      },
      reachable: [local, testEndpoint("10.2.0.9:8080")],
    },
    testServicePlan({
      name: "dns",
      clusterIp: "172.30.0.10",
      port: 53,
      protocol: "UDP",
      masqueradeInternal: "off-cluster",
      to: ["10.1.0.53:53", "10.2.0.53:53"],
    }),
    ...Array.from({ length: NEIGHBOURS }, (_, index) =>
      testServicePlan({
        name: `neighbour-${index}`,
        clusterIp: `172.30.1.${index}`,
        masqueradeInternal: "off-cluster",
        to: [`10.3.0.${index}:8080`, `10.4.0.${index}:8080`],
      })),
  ];
}
