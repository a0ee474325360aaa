/**
 * What rules depend on beside the plan. Nothing of it changes while the process runs, but for the
 * addresses of the Node. Pure.
 *
 * @module
 */
import type { IpFamily } from "../../lib/net/ip_address.ts";
import type { NodePortAddresses } from "../../lib/proxy/node_port_addresses.ts";

/** What a kernel may lack. */
export interface NftablesFeatures {
  /** Maps that the packet path fills. Without them session affinity cannot be expressed. */
  readonly affinity: boolean;
  /** Without it, what should be refused is dropped in silence. */
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

/** kube-proxy's defaults, but for the addresses of node ports: those of every node. */
export function defaultRenderOptions(family: IpFamily): NftablesRenderOptions {
  return {
    family,
    features: ALL_FEATURES,
    masqueradeBit: 14,
    nodePortAddresses: { kind: "all" },
    localhostNodePorts: false,
  };
}

/** The mark that asks for masquerade, as kube-proxy spells it. */
export function masqueradeMark({ masqueradeBit }: NftablesRenderOptions): string {
  return `0x${(2 ** masqueradeBit).toString(16)}`;
}
