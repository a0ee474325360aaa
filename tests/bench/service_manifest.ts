import { stringify } from "@std/yaml";
import type { RawObject } from "../conformance/server.ts";

/** One Service with one EndpointSlice. */
export interface BenchService {
  readonly name: string;
  readonly clusterIp: string;
  readonly protocol: "TCP" | "UDP";
  readonly endpoints: readonly string[];
  readonly endpointPort: number;
  /** The Node that all endpoints are on. @default {none is named} */
  readonly nodeName?: string;
  /** @default {none} */
  readonly externalIp?: string;
  /** @default {none} */
  readonly annotations?: Readonly<Record<string, string>>;
}

/** The port of a benchmark's Service. */
export function servicePort(protocol: "TCP" | "UDP"): number {
  return protocol === "TCP" ? 8080 : 5353;
}

/** Writes Service and EndpointSlice as two YAML documents, as a person would. */
export function writeServiceManifest(service: BenchService): string {
  return serviceObjects(service).map((object) => `---\n${stringify(object)}`).join("");
}

/** The two objects as the API has them. */
export function serviceObjects(
  { name, clusterIp, protocol, endpoints, endpointPort, nodeName, annotations, externalIp }:
    BenchService,
): readonly [RawObject, RawObject] {
  const labels = { "kubernetes.io/service-name": name };
  return [
    {
      apiVersion: "v1",
      kind: "Service",
      metadata: { namespace: "default", name, ...(annotations && { annotations }) },
      spec: {
        clusterIP: clusterIp,
        clusterIPs: [clusterIp],
        ipFamilies: ["IPv4"],
        ports: [{ name: "main", protocol, port: servicePort(protocol) }],
        ...(externalIp && { externalIPs: [externalIp] }),
      },
    },
    {
      apiVersion: "discovery.k8s.io/v1",
      kind: "EndpointSlice",
      metadata: { namespace: "default", name: `${name}-1`, labels },
      addressType: "IPv4",
      ports: [{ name: "main", protocol, port: endpointPort }],
      endpoints: endpoints.map((address) => ({
        addresses: [address],
        conditions: { ready: true },
        ...(nodeName !== undefined && { nodeName }),
      })),
    },
  ];
}

/** The n-th cluster IP of 127.96.0.0/12, for up to a million Services. */
export function clusterIpOf(index: number): string {
  const number = index + 1;
  return `127.${96 + (number >> 16)}.${(number >> 8) & 255}.${number & 255}`;
}
