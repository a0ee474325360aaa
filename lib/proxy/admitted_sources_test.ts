import { assertEquals } from "@std/assert";
import {
  type TestServicePlan,
  testServicePlan,
} from "../../tests/support/builders/service_plans.ts";
import { parseCidr } from "../net/cidr.ts";
import { parseIpAddress } from "../net/ip_address.ts";
import { admitsNode, admittedSources, isAdmitted, nodeIpsOf } from "./service_plan.ts";

const VIPS = ["1.2.3.4", "1.2.3.5"];

function admits(source: string, options: TestServicePlan): boolean | undefined {
  const admitted = admittedSources(testServicePlan({ loadBalancerVips: VIPS, ...options }));
  return admitted && isAdmitted(admitted, parseIpAddress(source));
}

function rangesOf(...ranges: readonly string[]) {
  return { sourceRanges: ranges.map(parseCidr) };
}

Deno.test("admittedSources() admits every source without ranges", () => {
  assertEquals(admits("203.0.113.1", {}), undefined);
});

Deno.test("isAdmitted() admits sources inside of a range, and no source without a range", () => {
  assertEquals(admits("203.0.113.1", rangesOf("203.0.113.0/24")), true);
  assertEquals(admits("203.0.114.1", rangesOf("203.0.113.0/24")), false);
  assertEquals(admits("203.0.113.1", rangesOf("0.0.0.0/0")), true);
  assertEquals(admits("203.0.113.1", rangesOf()), false);
  assertEquals(admits("2001:db8::1", rangesOf("0.0.0.0/0")), false);
});

Deno.test("isAdmitted() admits the load balancer addresses if the ranges admit the node", () => {
  for (const vip of VIPS) {
    assertEquals(admits(vip, { ...rangesOf("192.168.0.0/24"), admitsNode: true }), true);
    assertEquals(admits(vip, rangesOf("192.168.0.0/24")), false);
  }
});

Deno.test("admitsNode() goes by the node IP, or by the interfaces if it is unknown", () => {
  const [nodeIp, second, loopback] = ["192.168.0.2", "192.168.1.2", "127.0.0.1"]
    .map(parseIpAddress) as [never, never, never];
  const interfaceAddresses = [loopback, nodeIp, second];
  const known = nodeIpsOf({ interfaceAddresses, nodeIp });
  const unknown = nodeIpsOf({ interfaceAddresses });
  for (
    const [range, ofKnown, ofUnknown] of [
      ["192.168.0.0/24", true, true],
      ["192.168.1.0/24", false, true],
      ["127.0.0.0/8", false, false],
    ] as const
  ) {
    const ranges = [parseCidr(range)];
    assertEquals([admitsNode(ranges, known), admitsNode(ranges, unknown)], [ofKnown, ofUnknown]);
  }
});

Deno.test("admittedSources() keeps the ranges as the Service has them", () => {
  const { sourceRanges } = rangesOf("203.0.113.0/24", "203.0.113.7/32");
  const found = admittedSources(testServicePlan({ sourceRanges }));
  assertEquals([found?.ranges, found?.cover.outermost], [sourceRanges, [sourceRanges[0]!]]);
});
