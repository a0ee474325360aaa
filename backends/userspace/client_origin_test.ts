import { assertEquals } from "@std/assert";
import { parseCidr } from "../../lib/net/cidr.ts";
import { parseIpAddress } from "../../lib/net/ip_address.ts";
import type { LocalTrafficDetector } from "../../lib/proxy/local_traffic.ts";
import {
  testForward,
  type TestServicePlan,
  testServicePlan,
  testSharedPlan,
} from "../../tests/support/builders/service_plans.ts";
import { ClientOrigin } from "./client_origin.ts";
import { serviceAddresses } from "./listeners.ts";

const VIP = "203.0.113.1";
const NODE = parseIpAddress("192.0.2.10");
const POD = "10.180.0.5";
const OUTSIDE = "198.51.100.7";
const PODS: LocalTrafficDetector = { kind: "byCidr", cidr: parseCidr("10.180.0.0/16") };
const [LOCAL, CLUSTER] = [testForward("10.180.0.1:80"), testForward("10.180.9.9:80")];
const POLICY_LOCAL: TestServicePlan = {
  internal: CLUSTER,
  external: LOCAL,
  externalFromCluster: CLUSTER,
  loadBalancerVips: [VIP],
};

function withRanges(...ranges: readonly string[]): TestServicePlan {
  return { ...POLICY_LOCAL, sourceRanges: ranges.map(parseCidr) };
}

type Role = "LoadBalancer" | "ClusterIP";
const NOTHING: LocalTrafficDetector = { kind: "none" };
const BRIDGE: LocalTrafficDetector = { kind: "byBridge", interfaceName: "br0" };
const ONE_ENDPOINT = { ...POLICY_LOCAL, externalFromCluster: LOCAL };
const NO_LOCAL = { ...POLICY_LOCAL, external: { kind: "drop" } } as const;
const ADMITS_NODE = { ...withRanges("192.0.2.0/24"), admitsNode: true } as const;

const CASES: readonly [
  name: string,
  plan: TestServicePlan,
  client: string,
  expected: string | undefined,
  role?: Role,
  localTraffic?: LocalTrafficDetector,
][] = [
  ["the cluster IP", POLICY_LOCAL, OUTSIDE, "internal", "ClusterIP"],
  ["an outside client", POLICY_LOCAL, OUTSIDE, "external"],
  ["a pod, by its CIDR", POLICY_LOCAL, POD, "externalFromCluster"],
  ["a pod, when no CIDR is known", POLICY_LOCAL, POD, "external", "LoadBalancer", NOTHING],
  ["a pod behind an unseen interface", POLICY_LOCAL, POD, "external", "LoadBalancer", BRIDGE],
  ["the node, by its address", POLICY_LOCAL, NODE, "externalFromCluster"],
  ["the node, by the Service's own address", POLICY_LOCAL, VIP, "externalFromCluster"],
  ["the node, by loopback", POLICY_LOCAL, "127.0.0.1", "externalFromCluster"],
  ["policy Cluster makes no difference", ONE_ENDPOINT, POD, "external"],
  ["an outside client without local endpoints", NO_LOCAL, OUTSIDE, undefined],
  ["a client inside the source ranges", withRanges("198.51.100.0/24"), OUTSIDE, "external"],
  ["a client outside the source ranges", withRanges("198.51.101.0/24"), OUTSIDE, undefined],
  ["source ranges that admit no client", withRanges(), OUTSIDE, undefined],
  ["a pod outside the source ranges", withRanges("198.51.100.0/24"), POD, undefined],
  ["the node, when the ranges admit it", ADMITS_NODE, VIP, "externalFromCluster"],
  ["the node, when the ranges do not admit it", withRanges("198.51.100.0/24"), VIP, undefined],
  ["source ranges do not bind the cluster IP", withRanges(), OUTSIDE, "internal", "ClusterIP"],
];

for (const [name, options, client, expected, role = "LoadBalancer", localTraffic = PODS] of CASES) {
  Deno.test(`ClientOrigin.verdictFor(): ${name}`, () => {
    const origin = new ClientOrigin();
    const own = ["127.0.0.1", NODE, "10.180.0.1"].map(parseIpAddress);
    origin.update({ interfaceAddresses: own, localTraffic });
    const plan = testServicePlan(options);
    const at = serviceAddresses(plan, testSharedPlan()).find((each) => each.role === role)!;
    assertEquals(origin.verdictFor(plan, at, client), expected as never);
  });
}
