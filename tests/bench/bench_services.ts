/** The Services of the benchmark, as they have to be served: TCP on one cluster IP. */
import type { RawObject } from "../conformance/server.ts";
import { serviceObjects } from "./service_manifest.ts";

/** The port that every Service is asked on, and every endpoint listens on. */
export const BENCH_PORT = 8080;

/** The cluster IP of the index-th Service: scattered over 10.128.0.0/16, as an allocator does it. */
export function benchClusterIp(index: number): string {
  const [high, low] = octets(index);
  return `10.128.${high}.${low}`;
}

/** The address and port of one endpoint of a Service, by its number from 0 to 127. */
export function benchEndpoint(index: number, number: number): string {
  const [high, low] = octets(index);
  return `10.${number}.${high}.${low}:${BENCH_PORT}`;
}

/** Name of a Service, as `kubectl` would say it. */
function benchServiceName(index: number): string {
  return `service-${index}`;
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
