/** Builders of objects for tests: only the fields under test have to be named. */
import { type IpFamily, parseIpAddress } from "../../../lib/net/ip_address.ts";
import type { LoopId } from "../../../lib/engine/loop_id.ts";
import type { ObjectMeta } from "../../../lib/api/kind.ts";
import type {
  EndpointSlice,
  SliceEndpoint,
  SlicePort,
} from "../../../lib/api/kinds/endpoint_slice.ts";
import type { Endpoints } from "../../../lib/api/kinds/endpoints.ts";
import type { Node } from "../../../lib/api/kinds/node.ts";
import type { Service } from "../../../lib/api/kinds/service.ts";
import { parsePort } from "../../../lib/net/port.ts";
import { type Endpoint, endpointKey } from "../../../lib/proxy/endpoint.ts";
import type { NodeState } from "../../../lib/proxy/node_state.ts";
import { type ServicePort, servicePortsFromService } from "../../../lib/proxy/service_port.ts";
import { ADDRESSES, OTHER_NODE, THIS_NODE, THIS_ZONE } from "./address_plan.ts";

const { IPv4 } = ADDRESSES;

/** A name in namespace `ns1` or, with a slash, in the one before it. */
function metadata(name: string, rest: Partial<ObjectMeta> = {}): ObjectMeta {
  const slash = name.indexOf("/");
  return {
    namespace: slash < 0 ? "ns1" : name.slice(0, slash),
    name: name.slice(slash + 1),
    ...rest,
  };
}

/** The arguments of {@linkcode testService} besides the spec. */
export interface TestServiceOptions {
  readonly metadata?: Partial<ObjectMeta>;
  /** Addresses of `status.loadBalancer.ingress`. */
  readonly ingress?: NonNullable<NonNullable<Service["status"]>["loadBalancer"]>["ingress"];
}

/** A Service with the cluster IP of the plan and port 80; `spec` overrides fields. */
export function testService(
  name: string,
  spec: Partial<Service["spec"]> = {},
  options: TestServiceOptions = {},
): Service {
  return {
    metadata: metadata(name, options.metadata),
    spec: { clusterIP: IPv4.clusterIp, ports: [{ port: 80 }], ...spec },
    ...(options.ingress && { status: { loadBalancer: { ingress: options.ingress } } }),
  };
}

/** The arguments of {@linkcode testEndpointSlice}. */
export interface TestEndpointSliceOptions {
  /** Name of the slice. @default {name of the Service with "-1"} */
  readonly name?: string;
  /** @default {"IPv4"} */
  readonly addressType?: string;
  /** Addresses of plain ready endpoints, or whole ones. */
  readonly endpoints?: readonly (string | SliceEndpoint)[];
  /** @default {the unnamed port 80/TCP} */
  readonly ports?: readonly SlicePort[];
  readonly metadata?: Partial<ObjectMeta>;
}

/** A slice of a Service. */
export function testEndpointSlice(
  service: string,
  options: TestEndpointSliceOptions = {},
): EndpointSlice {
  const { namespace, name } = metadata(service);
  return {
    metadata: {
      ...metadata(`${namespace}/${options.name ?? `${name}-1`}`),
      ...options.metadata,
      labels: { "kubernetes.io/service-name": name, ...options.metadata?.labels },
    },
    addressType: options.addressType ?? "IPv4",
    endpoints: (options.endpoints ?? []).map((endpoint) =>
      typeof endpoint === "string" ? { addresses: [endpoint] } : endpoint
    ),
    ports: options.ports ?? [{ name: "", protocol: "TCP", port: 80 }],
  };
}

/** Endpoints of a Service, all of its subsets given. */
export function testEndpoints(
  service: string,
  subsets: Endpoints["subsets"],
  rest: Partial<ObjectMeta> = {},
): Endpoints {
  return { metadata: metadata(service, rest), subsets };
}

/** The own Node, with the node addresses of the plan. */
export function testNode(
  options: { readonly labels?: ObjectMeta["labels"]; readonly spec?: Node["spec"] } = {},
): Node {
  return {
    metadata: { name: THIS_NODE, labels: options.labels ?? {} },
    spec: options.spec ?? {},
    status: {
      addresses: [
        { type: "InternalIP", address: IPv4.node },
        { type: "InternalIP", address: ADDRESSES.IPv6.node },
      ],
    },
  };
}

/** The loop of one family of Services. */
export function serviceLoop(family: IpFamily): LoopId {
  return { controller: "service", family };
}

/** Returns the state of this node: in the plan's zone, with its addresses. */
export function testNodeState(overrides: Partial<NodeState> = {}): NodeState {
  return {
    name: THIS_NODE,
    addresses: [IPv4.node, ADDRESSES.IPv6.node],
    zone: THIS_ZONE,
    podCidrs: [],
    ...overrides,
  };
}

/** A ready endpoint on the other node; `overrides` replace fields. The default port is 80. */
export function testEndpoint(address: string, overrides: Partial<Endpoint> = {}): Endpoint {
  const ip = parseIpAddress(address);
  const port = overrides.port ?? parsePort(80);
  const isLocal = overrides.isLocal ?? false;
  return {
    key: endpointKey(ip, port),
    address: ip,
    port,
    isLocal,
    nodeName: isLocal ? THIS_NODE : OTHER_NODE,
    ready: true,
    serving: true,
    terminating: false,
    ...overrides,
  };
}

/** The first ServicePort of {@linkcode testService}; `overrides` replace fields. */
export function testServicePort(overrides: Partial<ServicePort> = {}): ServicePort {
  const { ports: [servicePort] } = servicePortsFromService(testService("web"), { family: "IPv4" });
  if (servicePort === undefined) throw new TypeError("Cannot build a ServicePort: none was read");
  return { ...servicePort, ...overrides };
}
