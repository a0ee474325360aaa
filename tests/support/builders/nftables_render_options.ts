import {
  ALL_FEATURES,
  type NftablesRenderOptions,
} from "../../../backends/nftables/render_options.ts";
import type { IpFamily } from "../../../lib/net/ip_address.ts";

/** kube-proxy's defaults, except for node ports, which every address of the node serves. */
export function defaultRenderOptions(family: IpFamily): NftablesRenderOptions {
  return {
    family,
    features: ALL_FEATURES,
    masqueradeBit: 14,
    nodePortAddresses: { kind: "all" },
    localhostNodePorts: false,
  };
}
