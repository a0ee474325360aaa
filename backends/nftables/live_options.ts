/**
 * From settings, the plan and what the kernel has to what rules depend on. Pure.
 *
 * @module
 */
import { cidrContains } from "../../lib/net/cidr.ts";
import { type IpFamily, parseIpAddress } from "../../lib/net/ip_address.ts";
import type { NodePortAddresses } from "../../lib/proxy/node_port_addresses.ts";
import type { SharedPlan } from "../../lib/proxy/proxy_plan.ts";
import type { NftablesFeatures, NftablesRenderOptions } from "./render_options.ts";

/** What does not change while the process runs. */
interface FixedSettings {
  readonly family: IpFamily;
  readonly masqueradeBit: number;
}

const LOOPBACK = parseIpAddress("127.0.0.1");

/**
 * Whether node ports are served on 127.0.0.1. kube-proxy's mode never does; here it takes an entry
 * that names loopback. All addresses of the node are not enough, as route_localnet is not harmless.
 * IPv6 has no such setting.
 */
export function servesLocalhost(
  { family }: Pick<FixedSettings, "family">,
  nodePorts: NodePortAddresses,
): boolean {
  return family === "IPv4" && nodePorts.kind === "cidrs" &&
    nodePorts.cidrs.some((cidr) => cidrContains(cidr, LOOPBACK));
}

/** Everything that rules depend on beside the Services of the plan. */
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
