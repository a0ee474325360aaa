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

interface Case {
  readonly name: string;
  readonly plan: TestServicePlan;
  readonly client: string;
  readonly role?: string;
  readonly localTraffic?: LocalTrafficDetector;
  readonly expected: string | undefined;
}

const CASES: readonly Case[] = [
  {
    name: "the cluster IP",
    plan: POLICY_LOCAL,
    client: OUTSIDE,
    role: "ClusterIP",
    expected: "internal",
  },
  { name: "an outside client", plan: POLICY_LOCAL, client: OUTSIDE, expected: "external" },
  { name: "a pod, by its CIDR", plan: POLICY_LOCAL, client: POD, expected: "externalFromCluster" },
  {
    name: "a pod, when no CIDR is known",
    plan: POLICY_LOCAL,
    client: POD,
    localTraffic: { kind: "none" },
    expected: "external",
  },
  {
    name: "a pod, detected by an interface that can't be seen",
    plan: POLICY_LOCAL,
    client: POD,
    localTraffic: { kind: "byBridge", interfaceName: "br0" },
    expected: "external",
  },
  {
    name: "the node, by its address",
    plan: POLICY_LOCAL,
    client: NODE,
    expected: "externalFromCluster",
  },
  {
    name: "the node, by the Service's own address",
    plan: POLICY_LOCAL,
    client: VIP,
    expected: "externalFromCluster",
  },
  {
    name: "the node, by loopback",
    plan: POLICY_LOCAL,
    client: "127.0.0.1",
    expected: "externalFromCluster",
  },
  {
    name: "policy Cluster makes no difference",
    plan: { ...POLICY_LOCAL, externalFromCluster: LOCAL },
    client: POD,
    expected: "external",
  },
  {
    name: "an outside client without local endpoints",
    plan: { ...POLICY_LOCAL, external: { kind: "drop" } },
    client: OUTSIDE,
    expected: undefined,
  },
  {
    name: "a client inside the source ranges",
    plan: { ...POLICY_LOCAL, sourceRanges: [parseCidr("198.51.100.0/24")] },
    client: OUTSIDE,
    expected: "external",
  },
  {
    name: "a client outside the source ranges",
    plan: { ...POLICY_LOCAL, sourceRanges: [parseCidr("198.51.101.0/24")] },
    client: OUTSIDE,
    expected: undefined,
  },
  {
    name: "source ranges that admit no client",
    plan: { ...POLICY_LOCAL, sourceRanges: [] },
    client: OUTSIDE,
    expected: undefined,
  },
  {
    name: "a pod outside the source ranges",
    plan: { ...POLICY_LOCAL, sourceRanges: [parseCidr("198.51.100.0/24")] },
    client: POD,
    expected: undefined,
  },
  {
    name: "the node, when the ranges admit it",
    plan: { ...POLICY_LOCAL, sourceRanges: [parseCidr("192.0.2.0/24")], admitsNode: true },
    client: VIP,
    expected: "externalFromCluster",
  },
  {
    name: "the node, when the ranges do not admit it",
    plan: { ...POLICY_LOCAL, sourceRanges: [parseCidr("198.51.100.0/24")] },
    client: VIP,
    expected: undefined,
  },
  {
    name: "source ranges do not bind the cluster IP",
    plan: { ...POLICY_LOCAL, sourceRanges: [] },
    client: OUTSIDE,
    role: "ClusterIP",
    expected: "internal",
  },
];

for (const { name, plan: options, client, role, localTraffic, expected } of CASES) {
  Deno.test(`ClientOrigin.verdictFor(): ${name}`, () => {
    const origin = new ClientOrigin();
    const own = ["127.0.0.1", NODE, "10.180.0.1"].map(parseIpAddress);
    origin.update({ interfaceAddresses: own, localTraffic: localTraffic ?? PODS });
    const plan = testServicePlan(options);
    const at = serviceAddresses(plan, testSharedPlan())
      .find((address) => address.role === (role ?? "LoadBalancer"))!;
    assertEquals(origin.verdictFor(plan, at, client), expected as never);
  });
}
