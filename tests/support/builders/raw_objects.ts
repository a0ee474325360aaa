/** The objects of builders in the form in which API servers and manifests have them. */
import { apiVersionsOf, type ObjectMeta } from "../../../lib/api/kind.ts";
import { SERVICE_KINDS } from "../../../lib/app/service/service_subscriptions.ts";
import type { RawObject } from "../../conformance/server.ts";

/** Gives objects their kind. */
export function rawObjects(
  kind: string,
  ...objects: readonly { readonly metadata: ObjectMeta }[]
): RawObject[] {
  const spec = SERVICE_KINDS.find((spec) => spec.kind === kind)!;
  const head = { apiVersion: apiVersionsOf(spec)[0]!, kind };
  // Only what JSON has goes over the wire.
  return JSON.parse(JSON.stringify(objects.map((object) => ({ ...head, ...object }))));
}

/** A manifest of objects. JSON is YAML. */
export function manifestText(items: readonly RawObject[]): string {
  return JSON.stringify({ apiVersion: "v1", kind: "List", items }, undefined, 1);
}

/** A Service of type LoadBalancer without node ports, in one family by default. */
export function rawLoadBalancerService(
  name: string,
  { clusterIP, ...spec }: { readonly clusterIP: string; readonly [field: string]: unknown },
): RawObject {
  return {
    apiVersion: "v1",
    kind: "Service",
    metadata: { namespace: "default", name },
    spec: {
      ...{ type: "LoadBalancer", clusterIP, clusterIPs: [clusterIP] },
      ...{ ipFamilies: ["IPv4"], ipFamilyPolicy: "SingleStack" },
      allocateLoadBalancerNodePorts: false,
      ...spec,
    },
    status: { loadBalancer: {} },
  };
}

/** A slice of a Service. */
export function rawEndpointSlice(
  service: string,
  { suffix = "1", addressType = "IPv4", endpoints, ports }: {
    readonly suffix?: string;
    readonly addressType?: string;
    readonly endpoints: readonly {
      readonly address: string;
      readonly nodeName: string;
      readonly isTerminating?: boolean;
    }[];
    readonly ports: readonly object[];
  },
): RawObject {
  return {
    apiVersion: "discovery.k8s.io/v1",
    kind: "EndpointSlice",
    metadata: {
      ...{ namespace: "default", name: `${service}-${suffix}` },
      labels: { "kubernetes.io/service-name": service },
    },
    addressType,
    endpoints: endpoints.map(({ address, nodeName, isTerminating = false }) => ({
      addresses: [address],
      nodeName,
      conditions: { ready: !isTerminating, serving: true, terminating: isTerminating },
    })),
    ports,
  };
}
