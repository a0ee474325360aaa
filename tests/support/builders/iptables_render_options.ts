import {
  ALL_FEATURES,
  type IptablesRenderOptions,
} from "../../../backends/iptables/render_options.ts";
import type { IpFamily } from "../../../lib/net/ip_address.ts";

/** kube-proxy's defaults. */
export function defaultRenderOptions(family: IpFamily): IptablesRenderOptions {
  return {
    family,
    features: ALL_FEATURES,
    masqueradeBit: 14,
    nodePortAddresses: { kind: "all" },
    localhostNodePorts: family === "IPv4",
    beLiberal: false,
    serviceComments: true,
  };
}
