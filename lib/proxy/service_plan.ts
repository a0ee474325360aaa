import type { Cidr } from "../net/cidr.ts";
import type { IpAddress } from "../net/ip_address.ts";
import type { Port } from "../net/port.ts";
import { admitsNode } from "./admitted_sources.ts";
import type { Endpoint } from "./endpoint.ts";
import type { LocalTrafficDetector } from "./local_traffic.ts";
import type { ServicePort, TrafficPolicy } from "./service_port.ts";
import type { ServicePortKey } from "./service_port_name.ts";
import { categorizeEndpoints, type NodeTopology } from "./topology.ts";
import type { Verdict } from "./verdict.ts";

/** The field of the Service that gives it the address. */
export type FrontendRole = "ClusterIP" | "ExternalIP" | "LoadBalancer" | "NodePort";

/** A server of kube-relay that owns an address and port, as in {@linkcode AgentPort.server}. */
interface OwningServer {
  readonly server: string;
}

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
  readonly owner: ServicePortKey | OwningServer | RefusedFrontend;
  /** Why the owner has it; absent if no ServicePort owns it. */
  readonly why?: Precedence;
}

/**
 * What gives an address and port to one of two ServicePorts: it is a cluster IP, it is an address and not
 * a node port, the age of the Service, or its name.
 */
export type Precedence = "cluster IP" | "address" | "age" | "name";

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

/** The input of a plan besides the ServicePort and its endpoints. */
export interface ServicePlanContext {
  readonly node: NodeTopology;
  readonly options: {
    readonly localTraffic: LocalTrafficDetector;
    /** Masquerade everything sent via cluster IPs. */
    readonly masqueradeAll: boolean;
  };
  /** The addresses that represent the node in source ranges. @default {none} */
  readonly nodeIps?: readonly IpAddress[];
  /** Frontends that another ServicePort owns. */
  readonly contested?: readonly ContestedFrontend[];
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
  { node, options, nodeIps = [], contested }: ServicePlanContext,
): ServicePlan {
  const {
    externallyAccessible,
    loadBalancerSourceRanges: sourceRanges,
    nodePort: _,
    ...fields
  } = servicePort;
  const { cluster, local, hasAny, reachable } = categorizeEndpoints(endpoints, servicePort, node);
  const verdicts: Record<TrafficPolicy, Verdict> = {
    Cluster: forwardOr(cluster, REJECT),
    Local: forwardOr(local, hasAny ? DROP : REJECT),
  };
  return {
    ...fields,
    ...ownedAddresses(servicePort, contested),
    ...(sourceRanges && {
      sourceRanges,
      ...(admitsNode(sourceRanges, nodeIps) && { admitsNode: true }),
    }),
    internal: verdicts[fields.internalTrafficPolicy],
    // Where no address leads there, the endpoint lists were not computed.
    external: externallyAccessible ? verdicts[fields.externalTrafficPolicy] : REJECT,
    externalFromCluster: externallyAccessible ? verdicts.Cluster : REJECT,
    masqueradeInternal: options.masqueradeAll
      ? "all"
      : options.localTraffic.kind === "none"
      ? "none"
      : "off-cluster",
    reachable,
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
