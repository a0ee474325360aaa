/**
 * The Services of the benchmark, as they have to be served: TCP on one cluster IP.
 *
 * @module
 */
import { type Cidr, parseCidr } from "../../lib/net/cidr.ts";
import type { SharedPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { testServicePlan, testSharedPlan } from "../support/builders/service_plans.ts";
import type { RawObject } from "../conformance/server.ts";
import { BENCH_PORT } from "./agent_protocol.ts";
import { serviceObjects } from "./service_manifest.ts";

/** The range of pods. Other clients are masqueraded. */
export const POD_CIDR: Cidr = parseCidr("10.0.0.0/9");

/** The range of cluster IPs. */
export const SERVICE_RANGE: Cidr = parseCidr("10.128.0.0/16");

/** The part of the plan that all Services share. */
export const BENCH_SHARED: SharedPlan = testSharedPlan({
  localTraffic: { kind: "byCidr", cidr: POD_CIDR },
  serviceCidrs: [SERVICE_RANGE],
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
  const first = 2 * (version % (VERSIONS / 2));
  return [benchEndpoint(index, first), benchEndpoint(index, first + 1)];
}

/** The address and port of one endpoint of a Service, by its number from 0 to 127. */
export function benchEndpoint(index: number, number: number): string {
  const [high, low] = octets(index);
  return `10.${number}.${high}.${low}:${BENCH_PORT}`;
}

/** Name of a Service, as `kubectl` would say it. */
export function benchServiceName(index: number): string {
  return `service-${index}`;
}

/** The plan of the index-th Service. */
export function benchServicePlan(index: number, version = 0): ServicePlan {
  return benchServicePlanTo(index, benchEndpoints(index, version));
}

/** The same with any endpoints, each as `address:port`. */
export function benchServicePlanTo(index: number, endpoints: readonly string[]): ServicePlan {
  return testServicePlan({
    name: benchServiceName(index),
    portName: "http",
    clusterIp: benchClusterIp(index),
    port: BENCH_PORT,
    masqueradeInternal: "off-cluster",
    to: endpoints,
  });
}

/** Its Service and EndpointSlice as the API has them, with endpoints of these numbers. */
export function benchObjects(
  index: number,
  endpoints: readonly number[],
): readonly [RawObject, RawObject] {
  return serviceObjects({
    name: benchServiceName(index),
    clusterIp: benchClusterIp(index),
    protocol: "TCP",
    endpoints: endpoints.map((number) => benchEndpoint(index, number).split(":")[0]!),
    endpointPort: BENCH_PORT,
    nodeName: "another-node",
  });
}

/** 65,536 different ones: an odd factor permutes the numbers of 16 bits. */
function octets(index: number): readonly [number, number] {
  const number = Math.imul(index, 40_503) & 0xffff;
  return [number >> 8, number & 255];
}
