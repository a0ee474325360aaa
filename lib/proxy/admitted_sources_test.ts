import { assertEquals } from "@std/assert";
import {
  type TestServicePlan,
  testServicePlan,
} from "../../tests/support/builders/service_plans.ts";
import { parseCidr } from "../net/cidr.ts";
import { parseIpAddress } from "../net/ip_address.ts";
import { admittedSources, isAdmitted } from "./service_plan.ts";

const VIPS = ["1.2.3.4", "1.2.3.5"];

function admits(source: string, options: TestServicePlan): boolean | undefined {
  const admitted = admittedSources(testServicePlan({ loadBalancerVips: VIPS, ...options }));
  return admitted && isAdmitted(admitted, parseIpAddress(source));
}

function rangesOf(...ranges: readonly string[]) {
  return { sourceRanges: ranges.map(parseCidr) };
}

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
