import type { EndpointSlice, SliceEndpoint } from "../api/kinds/endpoint_slice.ts";
import type { Endpoints, EndpointsAddress } from "../api/kinds/endpoints.ts";
import type { ProblemCollector } from "../api/problem_collector.ts";
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
export type EndpointHost = Omit<Endpoint, "key" | "port">;

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

/** Collects the endpoints of one object while it is read. */
export class PortEndpointsCollector {
  readonly #problems: ProblemCollector;
  readonly #lists = new Map<ServicePortKey, (readonly Endpoint[])[]>();
  #count = 0;

  constructor(problems: ProblemCollector) {
    this.#problems = problems;
  }

  /** The added endpoints, by ServicePort. */
  get ports(): readonly PortEndpoints[] {
    return [...this.#lists].map(([key, lists]) => ({ key, endpoints: mergeEndpoints(lists) }));
  }

  /** Adds these hosts on one port; `path` is the port's path in the object. */
  add(
    key: ServicePortKey,
    { hosts, port, path }: {
      readonly hosts: readonly EndpointHost[];
      readonly port: Port;
      readonly path: string;
    },
  ): void {
    this.#count += hosts.length;
    if (this.#count > MOST_ENDPOINTS) {
      const message = "The port and those after it are left out: one object may have 100000 " +
        "endpoints, counted as addresses times ports";
      return this.#problems.report(path, port, message);
    }
    const endpoints = hosts.map((host) => endpointOf(host, port));
    const lists = this.#lists.get(key);
    if (lists === undefined) this.#lists.set(key, [endpoints]);
    else lists.push(endpoints);
  }
}

/** The identity of an endpoint inside a ServicePort. */
export function endpointKey(address: IpAddress, port: Port): EndpointKey {
  return formatHostPort(address, port) as EndpointKey;
}

/** The endpoint of a host on one port. */
function endpointOf(host: EndpointHost, port: Port): Endpoint {
  return { ...host, key: endpointKey(host.address, port), port };
}

/** Whether an endpoint runs on the own node; false if the own node's name is unknown. */
export function isOnNode(endpointNode: string | undefined, ownNode: string): boolean {
  return ownNode !== "" && endpointNode === ownNode;
}

/**
 * Reads the endpoints of an EndpointSlice, by ServicePort. Port name and protocol must match the
 * Service's; the port number is the slice's own. Unusable values are omitted and reported.
 */
export function endpointsFromSlice(
  slice: EndpointSlice,
  reading: EndpointReading,
): readonly PortEndpoints[] {
  const hosts = slice.endpoints.flatMap((endpoint, index) =>
    endpointHost(endpoint, { ...reading, path: `endpoints[${index}]` }) ?? []
  );
  const found = new PortEndpointsCollector(reading.problems);
  for (const [index, slicePort] of slice.ports.entries()) {
    // The API server writes "" for an unnamed port; a manifest may omit the name.
    const port = tryParsePort(slicePort.port ?? 0);
    const protocol = tryParseProtocol(slicePort.protocol);
    if (port === undefined || protocol === undefined) {
      const message = "The port is left out: it needs a number and a protocol of TCP, UDP or SCTP";
      reading.problems.report(`ports[${index}]`, slicePort, message);
      continue;
    }
    const key = servicePortKey({ ...reading.service, port: slicePort.name ?? "", protocol });
    found.add(key, { hosts, port, path: `ports[${index}]` });
  }
  return found.ports;
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

function endpointHost(
  endpoint: SliceEndpoint,
  { family, nodeName, problems, path }: EndpointReading & { readonly path: string },
): EndpointHost | undefined {
  // All addresses of an endpoint are the same pod; consumers use the first (discovery/v1).
  const text = endpoint.addresses[0] ?? "";
  const address = tryParseIpAddress(text);
  if (address === undefined || ipFamilyOf(address) !== family) {
    const message = "The endpoint is left out: it needs an IP address of the slice's address type";
    problems.report(`${path}.addresses`, text, message);
    return undefined;
  }
  const { conditions, hints } = endpoint;
  return {
    address,
    isLocal: isOnNode(endpoint.nodeName, nodeName),
    ...(endpoint.nodeName !== undefined && { nodeName: endpoint.nodeName }),
    ready: conditions?.ready ?? true,
    serving: conditions?.serving ?? true,
    terminating: conditions?.terminating ?? false,
    ...(hints?.forZones?.[0] && { zoneHints: hints.forZones.map(({ name }) => name) }),
    ...(hints?.forNodes?.[0] && { nodeHints: hints.forNodes.map(({ name }) => name) }),
  };
}

/** Set by the endpoints controller if it truncated the list at 1,000 addresses. */
const OVER_CAPACITY_ANNOTATION = "endpoints.kubernetes.io/over-capacity";

type Subset = Endpoints["subsets"][number];

/**
 * Reads the endpoints of one IP family; an object may contain both families. `addresses` are ready
 * and serving, `notReadyAddresses` are neither. Endpoints have no terminating state and no hints.
 */
export function endpointsFromEndpoints(
  endpoints: Endpoints,
  reading: EndpointReading,
): readonly PortEndpoints[] {
  if (endpoints.metadata.annotations?.[OVER_CAPACITY_ANNOTATION] === "truncated") {
    reading.problems.report(
      `metadata.annotations['${OVER_CAPACITY_ANNOTATION}']`,
      "truncated",
      "Only some endpoints of the Service are used: an Endpoints object holds 1000, EndpointSlices have no such limit",
    );
  }
  const found = new PortEndpointsCollector(reading.problems);
  for (const [index, subset] of endpoints.subsets.entries()) {
    const place = { ...reading, path: `subsets[${index}]` };
    const hosts = hostsOf(subset, place);
    for (const [key, port, path] of subsetPorts(subset, place)) {
      found.add(key, { hosts, port, path });
    }
  }
  return found.ports;
}

type SubsetPlace = EndpointReading & { readonly path: string };

function hostsOf(subset: Subset, place: SubsetPlace): readonly EndpointHost[] {
  const lists = [["addresses", true], ["notReadyAddresses", false]] as const;
  return lists.flatMap(([field, ready]) =>
    (subset[field] ?? []).flatMap((address, index) =>
      hostOf(address, { ...place, ready, path: `${place.path}.${field}[${index}].ip` }) ?? []
    )
  );
}

function hostOf(
  { ip, nodeName }: EndpointsAddress,
  place: SubsetPlace & { readonly ready: boolean },
): EndpointHost | undefined {
  const address = tryParseIpAddress(ip);
  if (address === undefined) {
    place.problems.report(place.path, ip, "The endpoint is left out: it has to be an IP address");
    return undefined;
  }
  if (ipFamilyOf(address) !== place.family) return undefined;
  return {
    address,
    isLocal: isOnNode(nodeName, place.nodeName),
    ...(nodeName !== undefined && { nodeName }),
    ready: place.ready,
    serving: place.ready,
    terminating: false,
  };
}

function* subsetPorts(
  subset: Subset,
  { service, problems, path }: SubsetPlace,
): Generator<[ServicePortKey, Port, path: string]> {
  for (const [index, subsetPort] of (subset.ports ?? []).entries()) {
    const port = tryParsePort(subsetPort.port);
    const protocol = tryParseProtocol(subsetPort.protocol);
    if (port === undefined || protocol === undefined) {
      const message = "The port is left out: it needs a number and a protocol of TCP, UDP or SCTP";
      problems.report(`${path}.ports[${index}]`, subsetPort, message);
      continue;
    }
    const key = servicePortKey({ ...service, port: subsetPort.name ?? "", protocol });
    yield [key, port, `${path}.ports[${index}]`];
  }
}
