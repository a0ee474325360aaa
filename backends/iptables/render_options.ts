import { type Cidr, cidrContains } from "../../lib/net/cidr.ts";
import type { IpAddress, IpFamily } from "../../lib/net/ip_address.ts";
import { keepsClientAddress } from "../../lib/proxy/frontend.ts";
import { namesLoopback, type NodePortAddresses } from "../../lib/proxy/node_state.ts";
import type { ProxyPlan, SharedPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";

/**
 * Extensions that a kernel may lack. ServicePorts that need a missing one are quarantined or
 * expressed differently.
 */
export interface IptablesFeatures {
  /** Without it node ports name each address, and external policy Local cannot be expressed. */
  readonly addrtype: boolean;
  /** Without it rules have no comments. */
  readonly comment: boolean;
  /** Without its table there is no canary in it. */
  readonly mangle: boolean;
  /** Whether upstream's nfacct counters exist; without them packets are not counted. */
  readonly nfacct: boolean;
  /** `MASQUERADE --random-fully`, iptables 1.6.2: fewer collisions of source ports. */
  readonly randomFully: boolean;
  /** Without it session affinity cannot be expressed. */
  readonly recent: boolean;
  /** Without it ports of SCTP cannot be matched. */
  readonly sctp: boolean;
  /** Without it more than one endpoint cannot be expressed. */
  readonly statistic: boolean;
}

/** Settings of the rules of one IP family. */
export interface IptablesRenderOptions {
  readonly family: IpFamily;
  readonly features: IptablesFeatures;
  /** Bit of the packet mark that asks for masquerade, 0 to 31 (`iptables.masqueradeBit`). */
  readonly masqueradeBit: number;
  readonly nodePortAddresses: NodePortAddresses;
  /** Node ports on 127.0.0.0/8; IPv4 only. Needs `route_localnet`. */
  readonly localhostNodePorts: boolean;
  /** `nf_conntrack_tcp_be_liberal` is set: packets that conntrack finds invalid may pass. */
  readonly beLiberal: boolean;
  /**
   * Whether the first rule of each Service address has a comment that names the Service; see
   * {@linkcode hasServiceComments}.
   */
  readonly serviceComments: boolean;
  /**
   * Cluster IPs whose packets from other senders than pods are masqueraded by one rule for each
   * range; absent = each ServicePort has a rule that marks them.
   */
  readonly masqueradedRanges?: {
    readonly services: readonly Cidr[];
    /** The range of the pods, whose packets keep their source. */
    readonly pods: Cidr;
  };
}

/** Most ranges that have a rule each: every first packet to a Service is compared with all of them. */
const MOST_RANGES = 8;

/** Whether the rule of a range masquerades the packets to this cluster IP. */
export function isInMasqueradedRange(
  { masqueradedRanges }: Pick<IptablesRenderOptions, "masqueradedRanges">,
  address: IpAddress,
): boolean {
  return masqueradedRanges?.services.some((range) => cidrContains(range, address)) === true;
}

/**
 * Whether one rule may masquerade the packets to a whole range of cluster IPs. It may not if a
 * ServicePort of `keys` has an external address inside of the range, and packets to that address
 * keep their source.
 */
export function allowsRanges(
  { services, shared: { serviceCidrs } }: ProxyPlan,
  keys: Iterable<ServicePortKey> = services.keys(),
): boolean {
  for (const key of keys) {
    const plan = services.get(key);
    if (plan === undefined || !keepsClientAddress(plan)) continue;
    const addresses = [...plan.externalIps, ...plan.loadBalancerVips];
    if (addresses.some((each) => serviceCidrs.some((range) => cidrContains(range, each)))) {
      return false;
    }
  }
  return true;
}

/** Most ServicePorts whose rules have comments. */
const MOST_COMMENTED = 1_000;
/** Comments come back only below this number, so that a cluster at the limit is not rewritten often. */
const FEW = 500;

/**
 * Whether rules of so many ServicePorts have comments; `before`: whether the applied ones have. A
 * comment takes 288 bytes of each copy of a table of iptables-legacy, and both variants handle all
 * rules of a table at every change. Upstream omits comments beyond 1,000 endpoints.
 */
export function hasServiceComments(servicePorts: number, before = true): boolean {
  return servicePorts <= (before ? MOST_COMMENTED : FEW);
}

/** A kernel that has everything but the nfacct objects, which that kube-relay has to create first. */
export const ALL_FEATURES: IptablesFeatures = {
  addrtype: true,
  comment: true,
  mangle: true,
  nfacct: false,
  randomFully: true,
  recent: true,
  sctp: true,
  statistic: true,
};

/** Value and mask of the mark that asks for masquerade, as kube-proxy spells it. */
export function masqueradeMark({ masqueradeBit }: IptablesRenderOptions): string {
  return `0x${(2 ** masqueradeBit).toString(16).padStart(8, "0")}`;
}

/** Whether node ports are served on 127.0.0.0/8. IPv6 has no route_localnet. */
export function servesLocalhost(
  { family, localhostNodePorts }: Pick<IptablesRenderOptions, "family" | "localhostNodePorts">,
  nodePorts: NodePortAddresses,
): boolean {
  if (family !== "IPv4" || !localhostNodePorts) return false;
  return nodePorts.kind === "all" || namesLoopback(nodePorts);
}

/** The inputs of rules besides the Services of the plan. */
export function renderOptionsOf(
  fixed: Pick<IptablesRenderOptions, "family" | "localhostNodePorts" | "masqueradeBit">,
  shared: Pick<SharedPlan, "localTraffic" | "nodePortRanges" | "serviceCidrs">,
  { features, beLiberal, serviceComments, masqueradesRanges }:
    & Pick<IptablesRenderOptions, "beLiberal" | "features" | "serviceComments">
    /** {@linkcode allowsRanges} */
    & { readonly masqueradesRanges: boolean },
): IptablesRenderOptions {
  const { family, masqueradeBit } = fixed;
  const { localTraffic, nodePortRanges, serviceCidrs } = shared;
  const isMarked = !masqueradesRanges || localTraffic.kind !== "byCidr" ||
    serviceCidrs.length === 0 || serviceCidrs.length > MOST_RANGES;
  return {
    family,
    features,
    masqueradeBit,
    nodePortAddresses: nodePortRanges,
    localhostNodePorts: servesLocalhost(fixed, nodePortRanges),
    beLiberal,
    serviceComments,
    ...(!isMarked && { masqueradedRanges: { services: serviceCidrs, pods: localTraffic.cidr } }),
  };
}
