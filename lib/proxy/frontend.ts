import type { IpAddress } from "../net/ip_address.ts";
import type { Port } from "../net/port.ts";
import type { Endpoint } from "./endpoint.ts";
import {
  type AdmittedSources,
  admittedSources,
  type ContestedFrontend,
  type FrontendRole,
  type ServicePlan,
} from "./service_plan.ts";
import type { Verdict } from "./verdict.ts";

/** An address and port of a ServicePort that no other ServicePort owns. */
export interface Frontend {
  readonly role: FrontendRole;
  /** `undefined` = the addresses of {@linkcode nodePortAddressesOf}. */
  readonly address?: IpAddress;
  readonly port: Port;
  /** For clients in the cluster, which are pods and the node itself, and for all others. */
  readonly verdict: { readonly internal: Verdict; readonly external: Verdict };
  /** The packets that get an address of the node as their source. */
  readonly masquerade: "all" | "off-cluster" | "from-node" | "none";
  /** Clients that are admitted, the node's own exception included; `undefined` = all. */
  readonly admitted?: AdmittedSources;
  /** The server names that lead here, at an address that is shared by them; `undefined` = it is not. */
  readonly names?: readonly string[];
}

/**
 * Every frontend that a ServicePort owns, each address once, the cluster IP first. What decides, in
 * this order:
 *
 * 1. An address and port have one owner. Node ports come after all other frontends.
 * 2. A ServicePort without endpoints rejects every client, whatever its source ranges.
 * 3. A client outside of the source ranges is dropped, at load balancer addresses only.
 * 4. A client that policy Local leaves without an endpoint is dropped.
 *
 * kube-proxy's modes iptables and nftables have the same order of 2 and 3; its mode ipvs drops by
 * source ranges before it rejects.
 */
export function frontendsOf(plan: ServicePlan): readonly Frontend[] {
  const { clusterIp, port, nodePort, internal, masqueradeInternal } = plan;
  const frontends: Frontend[] = [];
  if (hasClusterIp(plan)) {
    frontends.push({
      role: "ClusterIP",
      address: clusterIp,
      port,
      verdict: { internal, external: internal },
      masquerade: masqueradeInternal,
    });
  }
  if (!isExternal(plan)) return frontends;
  const outside = {
    port,
    verdict: { internal: plan.externalFromCluster, external: plan.external },
    masquerade: masqueradeExternal(plan),
  } as const;
  const isRejected = plan.external.kind === "reject" && plan.externalFromCluster.kind === "reject";
  const admitted = isRejected ? undefined : admittedSources(plan);
  const shared = new Map(plan.shared?.map(({ address, names }) => [address, { names }]));
  const named = (address: IpAddress) => ({ address, ...shared.get(address) });
  for (const address of plan.externalIps) {
    frontends.push({ ...outside, role: "ExternalIP", ...named(address) });
  }
  for (const address of plan.loadBalancerVips) {
    const sources = admitted && { admitted };
    frontends.push({ ...outside, role: "LoadBalancer", ...named(address), ...sources });
  }
  if (nodePort !== undefined) frontends.push({ ...outside, role: "NodePort", port: nodePort });
  return frontends;
}

/** Whether a ServicePort owns its cluster IP and port. */
export function hasClusterIp({ contested }: Pick<ServicePlan, "contested">): boolean {
  return contested === undefined || !contested.some(({ role }) => role === "ClusterIP");
}

/** The addresses on which the node port of a ServicePort is its own. */
export function nodePortAddressesOf(
  { contested = [] }: Pick<ServicePlan, "contested">,
  addresses: readonly IpAddress[],
): readonly IpAddress[] {
  const taken = contested.flatMap(({ role, address }) => role === "NodePort" ? address ?? [] : []);
  return taken.length === 0 ? addresses : addresses.filter((each) => !taken.includes(each));
}

/** The frontends that a ServicePort lacks, without those of which users need no report. */
export function reportedContests(
  { contested = [] }: Pick<ServicePlan, "contested">,
): readonly ContestedFrontend[] {
  return contested.filter(({ owner }) =>
    typeof owner === "string" || !("isUsual" in owner) || !owner.isUsual
  );
}

/** Every address and port that a ServicePort claims and another one owns. */
export function contestedAddressesOf(
  plan: Pick<ServicePlan, "contested">,
  nodePortAddresses: readonly IpAddress[],
): readonly (Pick<Frontend, "port" | "role"> & { readonly address: IpAddress })[] {
  return reportedContests(plan).flatMap(({ role, address, port }) =>
    (address === undefined ? nodePortAddresses : [address])
      .map((each) => ({ role, address: each, port }))
  );
}

/**
 * Whether packets to external addresses keep the client's address. Only those of the node itself may
 * then have a source that the endpoint cannot answer.
 */
export function keepsClientAddress(
  plan: Pick<
    ServicePlan,
    "externalIps" | "externalTrafficPolicy" | "loadBalancerVips" | "nodePort"
  >,
): boolean {
  return isExternal(plan) && masqueradeExternal(plan) === "from-node";
}

/** Selects the packets to external addresses that get an address of the node as their source. */
export function masqueradeExternal(
  { externalTrafficPolicy }: Pick<ServicePlan, "externalTrafficPolicy">,
): "all" | "from-node" {
  return externalTrafficPolicy === "Local" ? "from-node" : "all";
}

/** Whether a ServicePort has an address for clients outside of the cluster. */
export function isExternal(
  { nodePort, externalIps, loadBalancerVips }: Pick<
    ServicePlan,
    "externalIps" | "loadBalancerVips" | "nodePort"
  >,
): boolean {
  return nodePort !== undefined || externalIps.length > 0 || loadBalancerVips.length > 0;
}

type HairpinPlan = Pick<
  ServicePlan,
  "externalIps" | "externalTrafficPolicy" | "loadBalancerVips" | "nodePort" | "reachable"
>;

/**
 * The endpoints that may receive their own packets through this node. Such a packet must come from
 * the node: with its own address as source the endpoint would answer itself, past the proxy. A node
 * sends only its own pods their own packets. A pod of another node receives them only if packets to
 * an external address keep their source. An endpoint of an unknown node may be local.
 */
export function hairpinEndpoints(plan: HairpinPlan): readonly Endpoint[] {
  const isSentOn = keepsClientAddress(plan);
  return plan.reachable.filter(({ isLocal, nodeName }) =>
    isLocal || nodeName === undefined || isSentOn
  );
}
