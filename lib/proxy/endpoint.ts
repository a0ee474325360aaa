import type { EndpointSlice, SlicePort } from "../api/kinds/endpoint_slice.ts";
import {
  type Endpoints,
  type EndpointsAddress,
  OVER_CAPACITY_ANNOTATION,
} from "../api/kinds/endpoints.ts";
import type { ProblemCollector } from "../api/problem.ts";
import { type IpAddress, type IpFamily, ipFamilyOf, tryParseIpAddress } from "../net/ip_address.ts";
import { formatHostPort, type Port, tryParsePort, tryParseProtocol } from "../net/port.ts";
import { deepEqual } from "./deep_equal.ts";
import { type NamespacedName, type ServicePortKey, servicePortKey } from "./service_port_name.ts";

/** `ip:port`, brackets around IPv6: the identity of an endpoint inside a ServicePort. */
export type EndpointKey = string & { readonly __brand: "EndpointKey" };

/** One address and port behind a ServicePort. */
export interface Endpoint {
  readonly key: EndpointKey;
  readonly address: IpAddress;
  readonly port: Port;
  /** Whether it runs on this node. */
  readonly isLocal: boolean;
  readonly nodeName?: string;
  /** Unset conditions mean ready, serving and not terminating. */
  readonly ready: boolean;
  readonly serving: boolean;
  readonly terminating: boolean;
  /** Zones that it is hinted for; `undefined` = no hint. */
  readonly zoneHints?: readonly string[];
  /** Nodes that it is hinted for; `undefined` = no hint. */
  readonly nodeHints?: readonly string[];
}

/** The endpoints that one object contributes to one ServicePort. */
export interface PortEndpoints {
  readonly key: ServicePortKey;
  /** Sorted by {@linkcode Endpoint.key}, without duplicates. */
  readonly endpoints: readonly Endpoint[];
}

/** An {@linkcode Endpoint} without its port. */
type EndpointHost = Omit<Endpoint, "key" | "port">;

/** The context in which an object with endpoints is read. */
export interface EndpointReading {
  readonly family: IpFamily;
  /** Endpoints on this node are local; empty = no endpoint is local. */
  readonly nodeName: string;
  /** The Service that the object belongs to. */
  readonly service: NamespacedName;
  readonly problems: ProblemCollector;
}

/**
 * Maximum number of endpoints of one object for all ServicePorts together: a slice may name 1,000
 * addresses and 20,000 ports, and 20 million endpoints would take 5 GB.
 */
const MOST_ENDPOINTS = 100_000;

/** The identity of an endpoint inside a ServicePort. */
export function endpointKey(address: IpAddress, port: Port): EndpointKey {
  return formatHostPort(address, port) as EndpointKey;
}

/**
 * Reads the endpoints of an EndpointSlice, by ServicePort. Port name and protocol must match the
 * Service's; the port number is the slice's own. Unusable values are omitted and reported.
 */
export function endpointsFromSlice(
  slice: EndpointSlice,
  reading: EndpointReading,
): readonly PortEndpoints[] {
  const { family, problems } = reading;
  const hosts = slice.endpoints.flatMap(({ addresses, conditions, hints, nodeName }, index) => {
    // All addresses of an endpoint are the same pod; consumers use the first (discovery/v1).
    const text = addresses[0] ?? "";
    const address = tryParseIpAddress(text);
    if (address === undefined || ipFamilyOf(address) !== family) {
      const message =
        "The endpoint is left out: it needs an IP address of the slice's address type";
      problems.report(`endpoints[${index}].addresses`, text, message);
      return [];
    }
    return hostAt(address, nodeName, reading, {
      ready: conditions?.ready ?? true,
      serving: conditions?.serving ?? true,
      terminating: conditions?.terminating ?? false,
      ...(hints?.forZones?.[0] && { zoneHints: hints.forZones.map(({ name }) => name) }),
      ...(hints?.forNodes?.[0] && { nodeHints: hints.forNodes.map(({ name }) => name) }),
    });
  });
  return atPorts([{ hosts, ports: slice.ports, path: "" }], reading);
}

/**
 * Reads the endpoints of one IP family; an object may contain both families. `addresses` are ready
 * and serving, `notReadyAddresses` are neither. Endpoints have no terminating state and no hints.
 */
export function endpointsFromEndpoints(
  endpoints: Endpoints,
  reading: EndpointReading,
): readonly PortEndpoints[] {
  const { family, problems } = reading;
  if (endpoints.metadata.annotations?.[OVER_CAPACITY_ANNOTATION] === "truncated") {
    problems.report(
      `metadata.annotations['${OVER_CAPACITY_ANNOTATION}']`,
      "truncated",
      "Only some endpoints of the Service are used: an Endpoints object holds 1000, EndpointSlices have no such limit",
    );
  }
  const hostsOf = (list: readonly EndpointsAddress[] = [], path: string, ready: boolean) =>
    list.flatMap(({ ip, nodeName }, index) => {
      const address = tryParseIpAddress(ip);
      if (address === undefined) {
        const message = "The endpoint is left out: it has to be an IP address";
        problems.report(`${path}[${index}].ip`, ip, message);
      }
      if (address === undefined || ipFamilyOf(address) !== family) return [];
      return hostAt(address, nodeName, reading, { ready, serving: ready, terminating: false });
    });
  const groups = endpoints.subsets.map(({ addresses, notReadyAddresses, ports = [] }, index) => {
    const path = `subsets[${index}].`;
    const ready = hostsOf(addresses, `${path}addresses`, true);
    const hosts = [...ready, ...hostsOf(notReadyAddresses, `${path}notReadyAddresses`, false)];
    return { hosts, ports, path };
  });
  return atPorts(groups, reading);
}

function hostAt(
  address: IpAddress,
  nodeName: string | undefined,
  { nodeName: ownNode }: EndpointReading,
  state: Omit<EndpointHost, "address" | "isLocal" | "nodeName">,
): EndpointHost {
  return {
    address,
    isLocal: ownNode !== "" && nodeName === ownNode,
    ...(nodeName !== undefined && { nodeName }),
    ...state,
  };
}

/** The endpoints of each group of hosts on each of its ports, by ServicePort. */
function atPorts(
  groups: readonly {
    readonly hosts: readonly EndpointHost[];
    readonly ports: readonly SlicePort[];
    /** What precedes `ports` in a path. */
    readonly path: string;
  }[],
  { service, problems }: EndpointReading,
): readonly PortEndpoints[] {
  const lists = new Map<ServicePortKey, (readonly Endpoint[])[]>();
  let count = 0;
  for (const { hosts, ports, path } of groups) {
    for (const [index, found] of ports.entries()) {
      // The API server writes "" for an unnamed port; a manifest may omit the name.
      const port = tryParsePort(found.port ?? 0);
      const protocol = tryParseProtocol(found.protocol);
      if (port === undefined || protocol === undefined) {
        const message =
          "The port is left out: it needs a number and a protocol of TCP, UDP or SCTP";
        problems.report(`${path}ports[${index}]`, found, message);
        continue;
      }
      count += hosts.length;
      if (count > MOST_ENDPOINTS) {
        const message = "The port and those after it are left out: one object may have 100000 " +
          "endpoints, counted as addresses times ports";
        problems.report(`${path}ports[${index}]`, port, message);
        continue;
      }
      const key = servicePortKey({ ...service, port: found.name ?? "", protocol });
      const endpoints = hosts.map((host) => (
        { ...host, key: endpointKey(host.address, port), port }
      ));
      lists.getOrInsertComputed(key, () => []).push(endpoints);
    }
  }
  return [...lists].map(([key, each]) => ({ key, endpoints: mergeEndpoints(each) }));
}

/**
 * Merges the lists of several objects: sorted by key, one endpoint per key. Of two with the same
 * key, the one more able to serve wins (ready, then serving, then not terminating), then the one of
 * the earlier list. Upstream depends on the order of a hash map (kubernetes/kubernetes#135266), and
 * may mistake an address reused by a new pod for the old one.
 */
export function mergeEndpoints(lists: readonly (readonly Endpoint[])[]): readonly Endpoint[] {
  const [only, ...others] = lists;
  if (only !== undefined && others.length === 0 && isInOrder(only)) return only;
  const winners = new Map<EndpointKey, Endpoint>();
  for (const endpoint of lists.flat()) {
    const other = winners.get(endpoint.key);
    if (other === undefined || rank(endpoint) > rank(other)) winners.set(endpoint.key, endpoint);
  }
  return [...winners.values()].sort(compareEndpoints);
}

/** Whether endpoints are sorted by key, without duplicates, as controllers often write them. */
function isInOrder(endpoints: readonly Endpoint[]): boolean {
  return endpoints.every(({ key }, index) => index === 0 || endpoints[index - 1]!.key < key);
}

/** Sorts by key, in byte order. */
export function compareEndpoints(left: Endpoint, right: Endpoint): number {
  return left.key < right.key ? -1 : left.key > right.key ? 1 : 0;
}

/**
 * `next`, with equal objects taken from `previous`, or `previous` itself if nothing differs. Both
 * are sorted. Keeps one copy in memory, and later comparisons cheap.
 */
export function reuseEndpoints(
  previous: readonly Endpoint[],
  next: readonly Endpoint[],
): readonly Endpoint[] {
  const known = new Map(previous.map((endpoint) => [endpoint.key, endpoint]));
  const merged = next.map((endpoint) => {
    const old = known.get(endpoint.key);
    return old !== undefined && deepEqual(old, endpoint) ? old : endpoint;
  });
  const same = merged.length === previous.length &&
    merged.every((endpoint, index) => endpoint === previous[index]);
  return same ? previous : merged;
}

function rank({ ready, serving, terminating }: Endpoint): number {
  return (ready ? 4 : 0) + (serving ? 2 : 0) + (terminating ? 0 : 1);
}
