/**
 * Reads core/v1 Endpoints, for Services that have no EndpointSlice: clusters before 1.21, and
 * manifests written by hand.
 *
 * @module
 */
import type { Endpoints, EndpointsAddress } from "../api/kinds/endpoints.ts";
import { ipFamilyOf, tryParseIpAddress } from "../net/ip_address.ts";
import { type Port, tryParsePort, tryParseProtocol } from "../net/port.ts";
import {
  type EndpointHost,
  type EndpointReading,
  isOnNode,
  type PortEndpoints,
  PortEndpointsCollector,
} from "./endpoint.ts";
import { type ServicePortKey, servicePortKey } from "./service_port_name.ts";

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
