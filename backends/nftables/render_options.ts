import type { IpFamily } from "../../lib/net/ip_address.ts";
import { namesLoopback, type NodePortAddresses } from "../../lib/proxy/node_state.ts";
import type { SharedPlan } from "../../lib/proxy/proxy_plan.ts";

/** Features that a kernel may lack. */
export interface NftablesFeatures {
  /** Maps that the packet path fills. Without them session affinity cannot be expressed. */
  readonly affinity: boolean;
  /** Without it, rejected packets are dropped silently. */
  readonly reject: boolean;
}

/** Settings of the rules of one IP family. */
export interface NftablesRenderOptions {
  readonly family: IpFamily;
  readonly features: NftablesFeatures;
  /** Bit of the packet mark that asks for masquerade, 0 to 31 (`nftables.masqueradeBit`). */
  readonly masqueradeBit: number;
  readonly nodePortAddresses: NodePortAddresses;
  /** Node ports on 127.0.0.0/8 too; IPv4 only. Needs `route_localnet`. */
  readonly localhostNodePorts: boolean;
}

/** A kernel that has everything. */
export const ALL_FEATURES: NftablesFeatures = { affinity: true, reject: true };

/** The mark that asks for masquerade, as kube-proxy spells it. */
export function masqueradeMark({ masqueradeBit }: NftablesRenderOptions): string {
  return `0x${(2 ** masqueradeBit).toString(16)}`;
}

/** The part that is constant while the process runs. */
interface FixedSettings {
  readonly family: IpFamily;
  readonly masqueradeBit: number;
}

/**
 * Whether node ports are served on 127.0.0.1. kube-proxy's nftables mode never does so; here a
 * range that names loopback is required. "All addresses" is not enough, as route_localnet has side
 * effects. IPv6 has no such setting.
 */
export function servesLocalhost(
  { family }: Pick<FixedSettings, "family">,
  nodePorts: NodePortAddresses,
): boolean {
  return family === "IPv4" && namesLoopback(nodePorts);
}

/** The inputs of rules besides the Services of the plan. */
export function renderOptionsOf(
  fixed: FixedSettings,
  { nodePortRanges }: Pick<SharedPlan, "nodePortRanges">,
  { features }: { readonly features: NftablesFeatures },
): NftablesRenderOptions {
  const { family, masqueradeBit } = fixed;
  return {
    family,
    features,
    masqueradeBit,
    nodePortAddresses: nodePortRanges,
    localhostNodePorts: servesLocalhost(fixed, nodePortRanges),
  };
}
