/** Service `web` of both families, as tests with real packets serve it. */
import type { EndpointSlice, SliceEndpoint } from "../../../lib/api/kinds/endpoint_slice.ts";
import type { Service } from "../../../lib/api/kinds/service.ts";
import type { RawObject } from "../../conformance/server.ts";
import { ADDRESSES, OTHER_NODE, THIS_NODE } from "./address_plan.ts";
import { testEndpointSlice, testNode, testService } from "./builders.ts";
import { rawObjects } from "./raw_objects.ts";

const { IPv4, IPv6 } = ADDRESSES;
const PORTS = ["TCP", "UDP"].map((protocol) => ({ name: protocol.toLowerCase(), protocol }));

/** The cluster IP and port of the Service. */
export const VIP = { protocol: "TCP", address: IPv4.clusterIp, port: 80 } as const;
export const VIP_UDP = { ...VIP, protocol: "UDP" } as const;
export const VIP_6 = { ...VIP, address: IPv6.clusterIp } as const;
/** The node port of {@linkcode ON_NODE_PORTS}. */
export const NODE_PORT = 30080;

/** A spec for {@linkcode webServices}. */
export const ON_NODE_PORTS: Partial<Service["spec"]> = {
  type: "NodePort",
  ports: PORTS.map((port) => ({ ...port, port: 80, nodePort: NODE_PORT })),
};

/** The Service of each family, with TCP and UDP; the IPv4 one with more in its spec. */
export function webServices(spec: Partial<Service["spec"]> = {}): Service[] {
  const ports = PORTS.map((port) => ({ ...port, port: 80 }));
  return [
    testService("web", { ports, externalIPs: [IPv4.externalIp], ...spec }),
    testService("web-6", { ports, clusterIP: IPv6.clusterIp }),
  ];
}

/** Its endpoints: the pod on this node, the one on the other, or both. */
export function webSlices(...pods: readonly ("a1" | "b1")[]): EndpointSlice[] {
  const ports = PORTS.map((port) => ({ ...port, port: 8080 }));
  return (["IPv4", "IPv6"] as const).map((addressType) => {
    const { localPods, remotePods } = ADDRESSES[addressType];
    const endpoints = pods.map((pod): SliceEndpoint =>
      pod === "a1"
        ? { addresses: [localPods[0]], nodeName: THIS_NODE }
        : { addresses: [remotePods[0]], nodeName: OTHER_NODE }
    );
    const service = addressType === "IPv4" ? "web" : "web-6";
    return testEndpointSlice(service, { addressType, endpoints, ports });
  });
}

/** All of it, and the own Node, for an API server. */
export function webObjects(...pods: readonly ("a1" | "b1")[]): RawObject[] {
  return [
    ...rawObjects("Node", testNode()),
    ...rawObjects("Service", ...webServices()),
    ...rawObjects("EndpointSlice", ...webSlices(...pods)),
  ];
}
