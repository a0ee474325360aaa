/** Describes the difference between two states of an object. Pure. */
import type { EndpointSlice, SliceEndpoint, SlicePort } from "../../api/kinds/endpoint_slice.ts";
import type { Endpoints } from "../../api/kinds/endpoints.ts";
import type { Service } from "../../api/kinds/service.ts";
import { SERVICE_NAME_LABEL } from "../../api/labels.ts";
import { formatHostPort, type Port, tryParsePort } from "../../net/port.ts";
import { tryParseIpAddress } from "../../net/ip_address.ts";
import type { NodeState } from "../../proxy/node_state.ts";
import { changeOf, itemChanges, limited } from "./change_text.ts";

/** Endpoints of a larger slice are only counted: naming them would delay the sync. */
const MOST_COMPARED = 200;

/** Fields of a Service with one value. */
const VALUES: readonly (readonly [string, (service: Service) => unknown])[] = [
  ["type", ({ spec }) => spec.type ?? "ClusterIP"],
  ["cluster IPs", ({ spec }) => (spec.clusterIPs ?? [spec.clusterIP ?? ""]).join(", ")],
  ["internal policy", ({ spec }) => spec.internalTrafficPolicy ?? "Cluster"],
  ["external policy", ({ spec }) => spec.externalTrafficPolicy ?? "Cluster"],
  ["affinity", ({ spec }) => spec.sessionAffinity ?? "None"],
  ["affinity timeout", ({ spec }) => spec.sessionAffinityConfig?.clientIP?.timeoutSeconds],
  ["health check port", ({ spec }) => spec.healthCheckNodePort],
];

/** Fields of a Service that are lists. */
const LISTS: readonly (readonly [string, (service: Service) => readonly string[]])[] = [
  ["port", ({ spec }) => (spec.ports ?? []).map(servicePortText)],
  ["external IP", ({ spec }) => spec.externalIPs ?? []],
  ["load balancer address", loadBalancerAddresses],
  ["source range", ({ spec }) => spec.loadBalancerSourceRanges ?? []],
];

/** Describes a changed Service; empty if only other fields changed. */
export function describeService(
  previous: Service | undefined,
  current: Service | undefined,
): readonly string[] {
  const either = current ?? previous;
  if (either === undefined) return [];
  if (!previous || !current) {
    const { type = "ClusterIP", ports = [] } = either.spec;
    return limited([
      type,
      ...ports.map((port) =>
        `port ${servicePortText(port)}${port.nodePort ? `, node port ${port.nodePort}` : ""}`
      ),
    ]);
  }
  return limited([
    ...VALUES.flatMap(([label, read]) => changeOf(label, [read(previous), read(current)])),
    ...nodePortText(previous, current),
    ...LISTS.flatMap(([label, read]) => itemChanges(label, [read(previous), read(current)])),
  ]);
}

/** Describes a changed EndpointSlice. */
export function describeEndpointSlice(
  previous: EndpointSlice | undefined,
  current: EndpointSlice | undefined,
): readonly string[] {
  const before = previous?.endpoints ?? [];
  const after = current?.endpoints ?? [];
  const service = (current ?? previous)?.metadata.labels?.[SERVICE_NAME_LABEL];
  const isPart = previous !== undefined && current !== undefined;
  return limited([
    ...(isPart || service === undefined ? [] : [`of Service ${service}`]),
    ...(isPart ? itemChanges("port", [portTexts(previous), portTexts(current)]) : []),
    ...changeOf("ready", [before.filter(isReady).length, after.filter(isReady).length]),
    ...(Math.max(before.length, after.length) > MOST_COMPARED
      ? changeOf("endpoints", [before.length, after.length])
      : endpointWords(previous, current)),
  ]);
}

/** Describes a changed Endpoints object. */
export function describeEndpoints(
  previous: Endpoints | undefined,
  current: Endpoints | undefined,
): readonly string[] {
  const [before, after] = [previous, current].map(readyAddresses) as [string[], string[]];
  const isLarge = Math.max(before.length, after.length) > MOST_COMPARED;
  return limited([
    ...changeOf("ready", [before.length, after.length]),
    ...(isLarge ? [] : itemChanges("endpoint", [before, after])),
  ]);
}

/** Describes a change of this node's Node object. */
export function describeNode(previous: NodeState, current: NodeState): readonly string[] {
  return limited([
    ...changeOf("zone", [previous.zone, current.zone]),
    ...itemChanges("address", [previous.addresses, current.addresses]),
    ...itemChanges("pod range", [previous.podCidrs, current.podCidrs]),
  ]);
}

function servicePortText(
  { name, port, protocol = "TCP" }: {
    readonly name?: string;
    readonly port: number;
    readonly protocol?: string;
  },
): string {
  return `${name === undefined ? "" : `${name} `}${port}/${protocol}`;
}

/** Changed node ports of ports in both states. */
function nodePortText(previous: Service, current: Service): readonly string[] {
  const before = new Map(
    (previous.spec.ports ?? []).map((port) => [servicePortText(port), port.nodePort]),
  );
  return (current.spec.ports ?? []).flatMap((port) => {
    const name = servicePortText(port);
    return before.has(name)
      ? changeOf(`node port of ${name}`, [before.get(name), port.nodePort])
      : [];
  });
}

function loadBalancerAddresses({ status }: Service): readonly string[] {
  return (status?.loadBalancer?.ingress ?? []).flatMap(({ ip }) => ip ?? []);
}

function isReady({ conditions }: SliceEndpoint): boolean {
  return conditions?.ready ?? true;
}

function stateOf({ conditions = {} }: SliceEndpoint): string {
  const { ready = true, serving = ready, terminating = false } = conditions;
  if (terminating) return serving ? "serving, terminating" : "terminating";
  return ready ? "ready" : "not ready";
}

function portTexts({ ports }: EndpointSlice): readonly string[] {
  return ports.map(({ name, port, protocol }: SlicePort) =>
    `${name ? `${name} ` : ""}${port ?? "?"}/${protocol ?? "TCP"}`
  );
}

/** Changed endpoints, by address, and with the port if there is only one. */
function endpointWords(
  previous: EndpointSlice | undefined,
  current: EndpointSlice | undefined,
): readonly string[] {
  const port = onlyPort(previous, current);
  const [before, after] = [previous, current].map((slice) => endpointsByName(slice, port)) as [
    ReadonlyMap<string, SliceEndpoint>,
    ReadonlyMap<string, SliceEndpoint>,
  ];
  const changed = [...after].flatMap(([name, endpoint]) => {
    const old = before.get(name);
    if (old === undefined) return [];
    return [
      ...changeOf(`endpoint ${name}`, [stateOf(old), stateOf(endpoint)]),
      ...changeOf(`node of ${name}`, [old.nodeName, endpoint.nodeName]),
      ...changeOf(`hints of ${name}`, [hintsOf(old), hintsOf(endpoint)]),
    ];
  });
  return [...itemChanges("endpoint", [[...before.keys()], [...after.keys()]]), ...changed];
}

/** The only port of all states. With changed ports in the names every endpoint would look new. */
function onlyPort(...slices: readonly (EndpointSlice | undefined)[]): Port | undefined {
  const numbers = new Set(slices.flatMap((slice) => slice?.ports ?? []).map(({ port }) => port));
  const [only, ...others] = [...numbers];
  return others.length === 0 ? tryParsePort(only ?? 0) : undefined;
}

function endpointsByName(
  slice: EndpointSlice | undefined,
  port: Port | undefined,
): ReadonlyMap<string, SliceEndpoint> {
  return new Map((slice?.endpoints ?? []).map((endpoint) => {
    const text = endpoint.addresses[0] ?? "";
    const address = port === undefined ? undefined : tryParseIpAddress(text);
    return [address === undefined ? text : formatHostPort(address, port!), endpoint];
  }));
}

function hintsOf({ hints }: SliceEndpoint): string | undefined {
  const names = [...hints?.forZones ?? [], ...hints?.forNodes ?? []].map(({ name }) => name);
  return names.length === 0 ? undefined : names.join(", ");
}

function readyAddresses(endpoints: Endpoints | undefined): string[] {
  return (endpoints?.subsets ?? []).flatMap(({ addresses = [] }) => addresses.map(({ ip }) => ip));
}
