import { assertEquals } from "@std/assert";
import { testServicePlan } from "../../tests/support/builders/service_plans.ts";
import { parseCidr } from "../net/cidr.ts";
import { parseIpAddress } from "../net/ip_address.ts";
import { admission, admittedSources } from "./admitted_sources.ts";
import type { FrontendRole } from "./frontend.ts";

const [VIP, OTHER_VIP] = ["1.2.3.4", "1.2.3.5"].map(parseIpAddress) as [never, never];
const NODE = parseIpAddress("192.168.0.2");

function admits(
  source: string,
  { ranges, role = "LoadBalancer", nodeIp }: {
    readonly ranges?: readonly string[];
    readonly role?: FrontendRole;
    readonly nodeIp?: typeof NODE;
  },
): boolean | undefined {
  const service = testServicePlan({
    loadBalancerVips: [VIP, OTHER_VIP],
    ...(ranges && { sourceRanges: ranges.map(parseCidr) }),
  });
  const sender = { source: parseIpAddress(source), nodeIps: [nodeIp] };
  return admission({ role, service }, sender).admitted;
}

Deno.test("admittedSources() admits every source without ranges, and at other frontends", () => {
  assertEquals(admits("203.0.113.1", {}), undefined);
  for (const role of ["ClusterIP", "ExternalIP", "NodePort"] as const) {
    assertEquals(admits("203.0.113.1", { ranges: [], role }), undefined, role);
  }
});

Deno.test("admittedSources() admits what a range contains, and nobody without a range", () => {
  assertEquals(admits("203.0.113.1", { ranges: ["203.0.113.0/24"] }), true);
  assertEquals(admits("203.0.114.1", { ranges: ["203.0.113.0/24"] }), false);
  assertEquals(admits("203.0.113.1", { ranges: ["0.0.0.0/0"] }), true);
  assertEquals(admits("203.0.113.1", { ranges: [] }), false);
  assertEquals(admits("2001:db8::1", { ranges: ["0.0.0.0/0"] }), false);
});

Deno.test("admittedSources() admits the load balancer addresses if a range contains the node", () => {
  const ranges = ["192.168.0.0/24"];
  for (const vip of [VIP, OTHER_VIP]) {
    assertEquals(admits(vip, { ranges, nodeIp: NODE }), true);
    assertEquals(admits(vip, { ranges }), false);
    assertEquals(admits(vip, { ranges: ["203.0.113.0/24"], nodeIp: NODE }), false);
  }
});

Deno.test("admittedSources() keeps the ranges as the Service has them", () => {
  const sourceRanges = ["203.0.113.0/24", "203.0.113.7/32"].map(parseCidr);
  const service = testServicePlan({ loadBalancerVips: [VIP], sourceRanges });
  const found = admittedSources(sourceRanges, service, []);
  assertEquals([found.ranges, found.cover.outermost], [sourceRanges, [sourceRanges[0]!]]);
});
