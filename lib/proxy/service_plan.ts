import type { Cidr } from "../net/cidr.ts";
import { CidrCover } from "../net/cidr_cover.ts";
import { type IpAddress, isLoopback } from "../net/ip_address.ts";
import type { Port } from "../net/port.ts";
import { compareEndpoints, type Endpoint } from "./endpoint.ts";
import type { LocalTrafficDetector } from "./local_traffic.ts";
import type { NodeState } from "./node_state.ts";
import type { ServicePort, TrafficPolicy } from "./service_port.ts";
import type { ServicePortKey } from "./service_port_name.ts";
import type { Verdict } from "./verdict.ts";

/** The field of the Service that gives it the address. */
export type FrontendRole = "ClusterIP" | "ExternalIP" | "LoadBalancer" | "NodePort";

/** A frontend that no ServicePort may have on this node. */
export interface RefusedFrontend {
  readonly refusal: string;
  /** Whether it is nothing to report: the other machine serves the frontend. */
  readonly isUsual?: boolean;
}

/**
 * A frontend that a ServicePort asks for and does not have: another one, or kube-relay itself, owns
 * it, or none may.
 */
export interface ContestedFrontend {
  readonly role: FrontendRole;
  /** `undefined` = the node port, on every address. */
  readonly address?: IpAddress;
  readonly port: Port;
  /** A ServicePort, or a server of kube-relay, as in {@linkcode AgentPort.server}, or none. */
  readonly owner: ServicePortKey | { readonly server: string } | RefusedFrontend;
  /** Why the owner has it; absent if no ServicePort owns it. */
  readonly why?: Precedence;
  /** All names for which it is claimed are refused, as {@linkcode SharedFrontend.refused} has them. */
  readonly isByName?: true;
}

/**
 * What gives an address and port to one of two ServicePorts: it is a cluster IP, it is an address and not
 * a node port, the age of the Service, its name, or that it does not share with other namespaces.
 */
export type Precedence = "cluster IP" | "address" | "age" | "name" | "unshared";

/** An external address that TLS clients reach several ServicePorts at, by the server names they ask for. */
export interface SharedFrontend {
  readonly address: IpAddress;
  /** What leads to this ServicePort, as {@linkcode ServerNameClaim}s. */
  readonly names: readonly string[];
  /** Claims that another ServicePort has. */
  readonly refused?: readonly RefusedName[];
}

/** A claim to a server name that another ServicePort has. */
export interface RefusedName {
  readonly name: string;
  readonly owner: ServicePortKey;
  readonly why: Precedence;
}

/**
 * The decision for one ServicePort. Deeply read-only; keeps its identity while unchanged. It has each
 * address, and the node port, only if no other ServicePort owns it, and each address once.
 */
export interface ServicePlan
  extends Omit<ServicePort, "loadBalancerSourceRanges" | "externallyAccessible"> {
  /**
   * Frontends that another ServicePort owns, perhaps with the cluster IP. Absent if there are none.
   */
  readonly contested?: readonly ContestedFrontend[];
  /** Of the external addresses, those where the server name decides. Absent if there are none. */
  readonly shared?: readonly SharedFrontend[];
  /** For {@linkcode loadBalancerVips} only; `undefined` = all sources, empty = none. */
  readonly sourceRanges?: readonly Cidr[];
  /** Whether {@linkcode sourceRanges} admit the node, by whichever of its addresses. */
  readonly admitsNode?: true;
  /** Traffic to the cluster IP. */
  readonly internal: Verdict;
  /** Traffic to node port, external IPs and load balancer addresses, from outside. */
  readonly external: Verdict;
  /**
   * The same traffic from a pod of this cluster or from the node itself, which policy Local does
   * not bind.
   */
  readonly externalFromCluster: Verdict;
  /** The traffic to the cluster IP that is masqueraded. */
  readonly masqueradeInternal: "all" | "off-cluster" | "none";
  /** Every endpoint that some verdict may choose, without duplicates, sorted by key. */
  readonly reachable: readonly Endpoint[];
  /** Every endpoint known, for `status` and `explain`. */
  readonly endpoints: readonly Endpoint[];
}

const REJECT: Verdict = { kind: "reject" };
const DROP: Verdict = { kind: "drop" };

/**
 * Plans a ServicePort. `endpoints` are sorted by key.
 *
 * A Service without any endpoint rejects, so that clients fail at once. A Service with endpoints,
 * but none on this node although policy Local requires one, drops: the load balancer in front is
 * about to notice, and a client would take a rejection as final.
 */
export function planService(
  servicePort: ServicePort,
  endpoints: readonly Endpoint[],
  { node, options, nodeIps = [], contested, shared }: {
    readonly node: NodeTopology;
    readonly options: {
      readonly localTraffic: LocalTrafficDetector;
      /** Masquerade everything sent via cluster IPs. */
      readonly masqueradeAll: boolean;
    };
    /** The addresses that represent the node in source ranges. @default {none} */
    readonly nodeIps?: readonly IpAddress[];
    /** Frontends that another ServicePort owns. */
    readonly contested?: readonly ContestedFrontend[] | undefined;
    readonly shared?: readonly SharedFrontend[] | undefined;
  },
): ServicePlan {
  const {
    externallyAccessible,
    loadBalancerSourceRanges: sourceRanges,
    nodePort: _,
    ...fields
  } = servicePort;
  const { internalTrafficPolicy, externalTrafficPolicy } = fields;
  // External policy Local needs the cluster list, too: it does not bind pods and the node itself.
  const usesCluster = internalTrafficPolicy === "Cluster" || externallyAccessible;
  const usesLocal = internalTrafficPolicy === "Local" ||
    (externalTrafficPolicy === "Local" && externallyAccessible);
  const cluster = usesCluster ? selectEndpoints(endpoints, "Cluster", node).endpoints : undefined;
  const local = usesLocal ? selectEndpoints(endpoints, "Local", node).endpoints : undefined;
  // Separates "no local endpoints" (drop) from "none" (reject).
  const hasAny = cluster?.length ||
    (usesLocal && endpoints.some((endpoint) => endpoint.ready || isDraining(endpoint)));
  const verdicts: Record<TrafficPolicy, Verdict> = {
    Cluster: forwardOr(cluster, REJECT),
    Local: forwardOr(local, hasAny ? DROP : REJECT),
  };
  return {
    ...fields,
    ...ownedAddresses(servicePort, contested),
    ...(shared && { shared }),
    ...(sourceRanges && {
      sourceRanges,
      ...(admitsNode(sourceRanges, nodeIps) && { admitsNode: true }),
    }),
    internal: verdicts[internalTrafficPolicy],
    // Where no address leads there, the endpoint lists were not computed.
    external: externallyAccessible ? verdicts[externalTrafficPolicy] : REJECT,
    externalFromCluster: externallyAccessible ? verdicts.Cluster : REJECT,
    masqueradeInternal: options.masqueradeAll
      ? "all"
      : options.localTraffic.kind === "none"
      ? "none"
      : "off-cluster",
    reachable: union(cluster, local),
    endpoints,
  };
}

/** The addresses of a ServicePort without those that another one owns, and each address once. */
export function ownedAddresses(
  { clusterIp, externalIps, loadBalancerVips, nodePort }: Pick<
    ServicePlan,
    "clusterIp" | "externalIps" | "loadBalancerVips" | "nodePort"
  >,
  contested: readonly ContestedFrontend[] | undefined,
): Pick<ServicePlan, "contested" | "externalIps" | "loadBalancerVips" | "nodePort"> {
  const hasNodePort = nodePort !== undefined &&
    !contested?.some(({ role, address }) => role === "NodePort" && address === undefined);
  const rest = { ...(hasNodePort && { nodePort }), ...(contested && { contested }) };
  if (externalIps.length + loadBalancerVips.length === 0) {
    return { ...rest, externalIps, loadBalancerVips };
  }
  const own = (list: readonly IpAddress[], wanted: FrontendRole, others: readonly IpAddress[]) => {
    const taken = new Set([clusterIp, ...others]);
    // An external IP may be refused that the Service may have as a load balancer address.
    for (const { role, address } of contested ?? []) {
      if (role === wanted && address !== undefined) taken.add(address);
    }
    return list.some((address) => taken.has(address))
      ? list.filter((address) => !taken.has(address))
      : list;
  };
  const ownExternalIps = own(externalIps, "ExternalIP", []);
  // An external IP that is also a load balancer address has no source ranges, as in kube-proxy.
  const ownVips = own(loadBalancerVips, "LoadBalancer", ownExternalIps);
  return { ...rest, externalIps: ownExternalIps, loadBalancerVips: ownVips };
}

function forwardOr(endpoints: readonly Endpoint[] | undefined, otherwise: Verdict): Verdict {
  return endpoints?.length ? { kind: "forward", endpoints } : otherwise;
}

/** The properties of the own node that select endpoints. */
export type NodeTopology = Pick<NodeState, "name" | "zone">;

const NO_ENDPOINTS: readonly Endpoint[] = [];

/** The reason why a traffic policy excludes an endpoint. */
export type ExclusionReason =
  /** It is on another node, and the policy is Local. */
  | "other-node"
  /** It is hinted for other nodes, and another endpoint is hinted for this node. */
  | "node-hint"
  /** It is hinted for other zones, and another endpoint is hinted for this node's zone. */
  | "zone-hint"
  /** It is not ready, and other endpoints are. */
  | "not-ready"
  /** It is neither ready nor terminating and still serving; no other endpoint is ready either. */
  | "not-serving";

/** A condition for the selection of an endpoint. */
interface Criterion {
  readonly otherwise: ExclusionReason;
  readonly holds: (endpoint: Endpoint) => boolean;
}

const LOCAL: Criterion = { otherwise: "other-node", holds: ({ isLocal }) => isLocal };
const READY: Criterion = { otherwise: "not-ready", holds: ({ ready }) => ready };
const DRAINING: Criterion = { otherwise: "not-serving", holds: isDraining };
/** The endpoints that a traffic policy may choose, and the criteria of the selection. */
interface EndpointSelection {
  readonly endpoints: readonly Endpoint[];
  /** No endpoint is ready: terminating endpoints that still serve are used. */
  readonly isFallback: boolean;
  /** The hints in effect; absent if none are. */
  readonly hints?: "node" | "zone";
  readonly criteria: readonly Criterion[];
}

/** The endpoints that a traffic policy may choose. `endpoints` are sorted by key. */
export function selectEndpoints(
  endpoints: readonly Endpoint[],
  policy: TrafficPolicy,
  node: NodeTopology,
): EndpointSelection {
  const placed = policy === "Local" ? [LOCAL] : [];
  const ready = selectionBy(endpoints, [...placed, READY]);
  if (ready.endpoints.length === 0) {
    return { ...selectionBy(endpoints, [...placed, DRAINING]), isFallback: true };
  }
  return policy === "Local" ? ready : hintedEndpoints(ready.endpoints, node) ?? ready;
}

/** Returns the reason why an endpoint is not selected; `undefined` = it is selected. */
export function exclusionOf(
  endpoint: Endpoint,
  { criteria }: Pick<EndpointSelection, "criteria">,
): ExclusionReason | undefined {
  return criteria.find(({ holds }) => !holds(endpoint))?.otherwise;
}

/** The kinds of hints, the more specific one first. */
const HINT_LEVELS = [
  { level: "node", hints: (endpoint: Endpoint) => endpoint.nodeHints },
  { level: "zone", hints: (endpoint: Endpoint) => endpoint.zoneHints },
] as const;

/**
 * The endpoints hinted for this node or else for its zone. Hints are used only if all endpoints
 * have them: one without a hint means that hints are being updated. If no endpoint is hinted for
 * this node or zone, the hints do not account for it.
 */
function hintedEndpoints(
  ready: readonly Endpoint[],
  { name, zone }: NodeTopology,
): EndpointSelection | undefined {
  for (const { level, hints } of HINT_LEVELS) {
    const ours = level === "node" ? name : zone ?? "";
    if (ours === "" || ready.some((endpoint) => hints(endpoint) === undefined)) continue;
    const criterion: Criterion = {
      otherwise: `${level}-hint`,
      holds: (endpoint) => hints(endpoint)?.includes(ours) ?? false,
    };
    const { endpoints } = selectionBy(ready, [criterion]);
    if (endpoints.length === 0) continue;
    return { endpoints, isFallback: false, hints: level, criteria: [READY, criterion] };
  }
  return undefined;
}

function selectionBy(
  endpoints: readonly Endpoint[],
  criteria: readonly Criterion[],
): EndpointSelection {
  const isMeant = (endpoint: Endpoint) => criteria.every(({ holds }) => holds(endpoint));
  // The list itself if all is selected, so that most plans share one. Otherwise a copy: V8 leaves the
  // result of filter() with room for 17 items, and plans are kept for long.
  const selected = endpoints.every(isMeant) ? endpoints : endpoints.filter(isMeant).slice();
  return {
    endpoints: selected.length === 0 ? NO_ENDPOINTS : selected,
    isFallback: false,
    criteria,
  };
}

/** Whether an endpoint is terminating and still serves. */
function isDraining({ serving, terminating }: Endpoint): boolean {
  return serving && terminating;
}

function union(
  cluster: readonly Endpoint[] = NO_ENDPOINTS,
  local: readonly Endpoint[] = NO_ENDPOINTS,
): readonly Endpoint[] {
  if (local.length === 0) return cluster;
  const all = new Set(cluster);
  const missing = local.filter((endpoint) => !all.has(endpoint));
  if (missing.length === 0) return cluster;
  if (cluster.length === 0) return local;
  return [...cluster, ...missing].sort(compareEndpoints);
}

/** The sources that a frontend with `loadBalancerSourceRanges` admits. */
export interface AdmittedSources {
  /** As the Service has them. Empty if none is valid for the IP family. */
  readonly ranges: readonly Cidr[];
  readonly cover: CidrCover;
  /**
   * The load balancer addresses if the ranges admit the node, else none: packets of the node have
   * such an address as their source where it is bound to the node.
   */
  readonly own: readonly IpAddress[];
}

/** The sources that the load balancer addresses of a plan admit; `undefined` = all. */
export function admittedSources(
  { admitsNode, loadBalancerVips, sourceRanges }: {
    readonly admitsNode?: true;
    readonly loadBalancerVips: readonly IpAddress[];
    readonly sourceRanges?: readonly Cidr[];
  },
): AdmittedSources | undefined {
  if (sourceRanges === undefined) return undefined;
  return {
    ranges: sourceRanges,
    cover: coverOf(sourceRanges),
    own: admitsNode ? loadBalancerVips : [],
  };
}

/** Whether a source is admitted. */
export function isAdmitted({ cover, own }: AdmittedSources, source: IpAddress): boolean {
  return own.includes(source) || cover.contains(source);
}

/** Whether ranges contain one of the addresses that represent the node. */
export function admitsNode(ranges: readonly Cidr[], nodeIps: readonly IpAddress[]): boolean {
  return nodeIps.some((nodeIp) => coverOf(ranges).contains(nodeIp));
}

/** The addresses that represent the node in source ranges: its node IP, or its interfaces' without one. */
export function nodeIpsOf(
  { interfaceAddresses, nodeIp }: {
    readonly interfaceAddresses: readonly IpAddress[];
    readonly nodeIp?: IpAddress;
  },
): readonly IpAddress[] {
  return nodeIp === undefined ? interfaceAddresses.filter((own) => !isLoopback(own)) : [nodeIp];
}

const covers = new WeakMap<readonly Cidr[], CidrCover>();

/** The source ranges of a Service keep their identity while its endpoints change. */
function coverOf(ranges: readonly Cidr[]): CidrCover {
  const cover = covers.get(ranges) ?? new CidrCover(ranges);
  covers.set(ranges, cover);
  return cover;
}
