import type { IpFamily } from "../../lib/net/ip_address.ts";
import { namesLoopback, type NodePortAddresses } from "../../lib/proxy/node_port_addresses.ts";
import type { SharedPlan } from "../../lib/proxy/proxy_plan.ts";

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

/** The part that is constant while the process runs. */
interface FixedSettings {
  readonly family: IpFamily;
  readonly masqueradeBit: number;
  readonly localhostNodePorts: boolean;
}

/** Facts about the machine. */
interface MachineSettings {
  readonly features: IptablesFeatures;
  readonly beLiberal: boolean;
  readonly serviceComments: boolean;
}

/** Whether node ports are served on 127.0.0.0/8. IPv6 has no route_localnet. */
export function servesLocalhost(
  { family, localhostNodePorts }: FixedSettings,
  nodePorts: NodePortAddresses,
): boolean {
  if (family !== "IPv4" || !localhostNodePorts) return false;
  return nodePorts.kind === "all" || namesLoopback(nodePorts);
}

/** The inputs of rules besides the Services of the plan. */
export function renderOptionsOf(
  fixed: FixedSettings,
  { nodePortRanges }: Pick<SharedPlan, "nodePortRanges">,
  { features, beLiberal, serviceComments }: MachineSettings,
): IptablesRenderOptions {
  const { family, masqueradeBit } = fixed;
  return {
    family,
    features,
    masqueradeBit,
    nodePortAddresses: nodePortRanges,
    localhostNodePorts: servesLocalhost(fixed, nodePortRanges),
    beLiberal,
    serviceComments,
  };
}
