/**
 * What has to hold for one ServicePort, whatever the backend. No word of iptables in it.
 *
 * @module
 */
import type { Cidr } from "../net/cidr.ts";
import type { IpAddress } from "../net/ip_address.ts";
import type { Port, Protocol } from "../net/port.ts";
import type { Endpoint } from "./endpoint.ts";
import type { LocalTrafficDetector } from "./local_traffic.ts";
import type { ModeAnnotations } from "./mode_annotations.ts";
import type { ServicePort, TrafficPolicy } from "./service_port.ts";
import type { ServicePortKey, ServicePortName } from "./service_port_name.ts";
import { type CategorizedEndpoints, categorizeEndpoints, type NodeTopology } from "./topology.ts";
import type { Verdict } from "./verdict.ts";

/** The decision for one ServicePort. Deeply read-only; keeps its identity while nothing changed. */
export interface ServicePlan {
  readonly key: ServicePortKey;
  readonly name: ServicePortName;
  readonly protocol: Protocol;
  readonly clusterIp: IpAddress;
  readonly port: Port;
  readonly nodePort?: Port;
  readonly externalIps: readonly IpAddress[];
  readonly loadBalancerVips: readonly IpAddress[];
  /** For {@linkcode loadBalancerVips} only; `undefined` = everybody, empty = nobody. */
  readonly sourceRanges?: readonly Cidr[];
  /** Traffic to the cluster IP. */
  readonly internal: Verdict;
  /** Traffic to node port, external IPs and load balancer addresses, from outside. */
  readonly external: Verdict;
  /** The same from a pod of this cluster or from the node itself: policy Local does not bind it. */
  readonly externalFromCluster: Verdict;
  /** By which policies the verdicts were reached. */
  readonly internalTrafficPolicy: TrafficPolicy;
  readonly externalTrafficPolicy: TrafficPolicy;
  readonly affinityTimeoutSeconds?: number;
  /** Which traffic to the cluster IP leaves with the node's address. */
  readonly masqueradeInternal: "all" | "off-cluster" | "none";
  /** Which traffic to the external addresses does: all of it, or only what comes from the node itself. */
  readonly masqueradeExternal: "all" | "from-node";
  /** Every endpoint that some verdict may pick, without duplicates, sorted by key. */
  readonly reachable: readonly Endpoint[];
  /** Every endpoint known, for `status` and `explain`. */
  readonly endpoints: readonly Endpoint[];
  readonly healthCheckNodePort?: Port;
  /** When the Service was made, as text that sorts; the older one has an address that two claim. */
  readonly createdAt?: string;
  /** As {@linkcode ServicePort.annotations}. */
  readonly annotations?: ModeAnnotations;
}

/** What a plan depends on beside the ServicePort and its endpoints. */
export interface ServicePlanContext {
  readonly node: NodeTopology;
  readonly options: {
    readonly localTraffic: LocalTrafficDetector;
    /** Masquerade everything sent via cluster IPs. */
    readonly masqueradeAll: boolean;
  };
}

const REJECT: Verdict = { kind: "reject" };
const DROP: Verdict = { kind: "drop" };

/**
 * Decides what has to hold for a ServicePort. `endpoints` are sorted by key.
 *
 * A Service without any endpoint refuses, so that clients fail at once; one that has endpoints,
 * but none on this node where policy Local asks for one, drops: the load balancer in front is
 * about to notice, and a refusal would reach the client as final.
 */
export function planService(
  servicePort: ServicePort,
  endpoints: readonly Endpoint[],
  { node, options }: ServicePlanContext,
): ServicePlan {
  const categorized = categorizeEndpoints(endpoints, servicePort, node);
  return {
    ...addressesOf(servicePort),
    ...verdictsOf(servicePort, categorized),
    internalTrafficPolicy: servicePort.internalTrafficPolicy,
    externalTrafficPolicy: servicePort.externalTrafficPolicy,
    ...(servicePort.affinityTimeoutSeconds !== undefined && {
      affinityTimeoutSeconds: servicePort.affinityTimeoutSeconds,
    }),
    masqueradeInternal: masqueradeInternal(options),
    // Policy Local is there to keep the client's address; only the node's own traffic may lack one
    // that the endpoint can answer.
    masqueradeExternal: servicePort.externalTrafficPolicy === "Local" ? "from-node" : "all",
    reachable: categorized.reachable,
    endpoints,
    ...(servicePort.healthCheckNodePort !== undefined && {
      healthCheckNodePort: servicePort.healthCheckNodePort,
    }),
  };
}

function addressesOf(servicePort: ServicePort) {
  const { nodePort, loadBalancerSourceRanges, createdAt, annotations } = servicePort;
  return {
    key: servicePort.key,
    name: servicePort.name,
    protocol: servicePort.protocol,
    clusterIp: servicePort.clusterIp,
    port: servicePort.port,
    ...(nodePort !== undefined && { nodePort }),
    externalIps: servicePort.externalIps,
    loadBalancerVips: servicePort.loadBalancerVips,
    ...(loadBalancerSourceRanges !== undefined && { sourceRanges: loadBalancerSourceRanges }),
    ...(createdAt !== undefined && { createdAt }),
    ...(annotations && { annotations }),
  };
}

function verdictsOf(
  servicePort: ServicePort,
  { cluster, local, hasAny }: CategorizedEndpoints,
): Pick<ServicePlan, "internal" | "external" | "externalFromCluster"> {
  const verdicts: Record<TrafficPolicy, Verdict> = {
    Cluster: forwardOr(cluster, REJECT),
    Local: forwardOr(local, hasAny ? DROP : REJECT),
  };
  const { internalTrafficPolicy, externalTrafficPolicy, externallyAccessible } = servicePort;
  return {
    internal: verdicts[internalTrafficPolicy],
    // No address leads there, so the endpoint lists for it were not asked for.
    external: externallyAccessible ? verdicts[externalTrafficPolicy] : REJECT,
    externalFromCluster: externallyAccessible ? verdicts.Cluster : REJECT,
  };
}

function forwardOr(endpoints: readonly Endpoint[] | undefined, otherwise: Verdict): Verdict {
  return endpoints?.length ? { kind: "forward", endpoints } : otherwise;
}

function masqueradeInternal(
  { localTraffic, masqueradeAll }: ServicePlanContext["options"],
): ServicePlan["masqueradeInternal"] {
  if (masqueradeAll) return "all";
  return localTraffic.kind === "none" ? "none" : "off-cluster";
}
