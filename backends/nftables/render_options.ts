import type { IpFamily } from "../../lib/net/ip_address.ts";
import { namesLoopback, type NodePortAddresses } from "../../lib/proxy/node_state.ts";

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

/** The inputs of rules besides the Services of the plan. `nodePortRanges` as in the plan. */
export function renderOptionsOf(
  { family, masqueradeBit }: Pick<NftablesRenderOptions, "family" | "masqueradeBit">,
  nodePortRanges: NodePortAddresses,
  features: NftablesFeatures,
): NftablesRenderOptions {
  return {
    family,
    features,
    masqueradeBit,
    nodePortAddresses: nodePortRanges,
    // kube-proxy's nftables mode never serves it; here a range that names loopback is required. "All
    // addresses" is not enough, as route_localnet has side effects. IPv6 has no such setting.
    localhostNodePorts: family === "IPv4" && namesLoopback(nodePortRanges),
  };
}
