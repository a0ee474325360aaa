/**
 * The Services of the benchmark, as they have to be served: TCP on one cluster IP, two endpoints.
 *
 * @module
 */
import { type Cidr, parseCidr } from "../../../lib/net/cidr.ts";
import type { SharedPlan } from "../../../lib/proxy/proxy_plan.ts";
import type { ServicePlan } from "../../../lib/proxy/service_plan.ts";
import { testServicePlan, testSharedPlan } from "../../support/service_plans.ts";
import { BENCH_PORT } from "./agent_protocol.ts";

/** Where pods are: other clients are masqueraded. */
export const POD_CIDR: Cidr = parseCidr("10.0.0.0/9");

/** What all Services share. */
export const BENCH_SHARED: SharedPlan = testSharedPlan({
  localTraffic: { kind: "byCidr", cidr: POD_CIDR },
});

/** Addresses of endpoints that this many Services have in each version. */
const VERSIONS = 64;

/** The cluster IP of the index-th Service: scattered over 10.128.0.0/16, as an allocator does it. */
export function benchClusterIp(index: number): string {
  const [high, low] = octets(index);
  return `10.128.${high}.${low}`;
}

/** The endpoints of a Service; a new version has others. */
export function benchEndpoints(index: number, version = 0): readonly [string, string] {
  const [high, low] = octets(index);
  const first = 2 * (version % (VERSIONS / 2));
  return [
    `10.${first}.${high}.${low}:${BENCH_PORT}`,
    `10.${first + 1}.${high}.${low}:${BENCH_PORT}`,
  ];
}

/** Name of a Service, as `kubectl` would say it. */
export function benchServiceName(index: number): string {
  return `service-${index}`;
}

/** The plan of the index-th Service. */
export function benchServicePlan(index: number, version = 0): ServicePlan {
  return testServicePlan({
    name: benchServiceName(index),
    portName: "http",
    clusterIp: benchClusterIp(index),
    port: BENCH_PORT,
    masqueradeInternal: "off-cluster",
    to: benchEndpoints(index, version),
  });
}

/** 65,536 different ones: an odd factor permutes the numbers of 16 bits. */
function octets(index: number): readonly [number, number] {
  const number = Math.imul(index, 40_503) & 0xffff;
  return [number >> 8, number & 255];
}
