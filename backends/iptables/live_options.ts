/**
 * From settings, the plan and what the kernel has to what rules depend on. Pure.
 *
 * @module
 */
import { cidrContains } from "../../lib/net/cidr.ts";
import { type IpFamily, parseIpAddress } from "../../lib/net/ip_address.ts";
import type { NodePortAddresses } from "../../lib/proxy/node_port_addresses.ts";
import type { SharedPlan } from "../../lib/proxy/proxy_plan.ts";
import type { IptablesFeatures, IptablesRenderOptions } from "./render_options.ts";

/** What does not change while the process runs. */
interface FixedSettings {
  readonly family: IpFamily;
  readonly masqueradeBit: number;
  readonly localhostNodePorts: boolean;
}

/** What the kernel has to say. */
interface KernelSettings {
  readonly features: IptablesFeatures;
  readonly beLiberal: boolean;
}

const LOOPBACK = parseIpAddress("127.0.0.1");

/** Whether node ports are served on 127.0.0.0/8. IPv6 has no route_localnet. */
export function servesLocalhost(
  { family, localhostNodePorts }: FixedSettings,
  nodePorts: NodePortAddresses,
): boolean {
  if (family !== "IPv4" || !localhostNodePorts) return false;
  return nodePorts.kind === "all" ||
    nodePorts.cidrs.some((cidr) => cidrContains(cidr, LOOPBACK));
}

/** Everything that rules depend on beside the Services of the plan. */
export function renderOptionsOf(
  fixed: FixedSettings,
  { nodePortRanges }: Pick<SharedPlan, "nodePortRanges">,
  { features, beLiberal }: KernelSettings,
): IptablesRenderOptions {
  const { family, masqueradeBit } = fixed;
  return {
    family,
    features,
    masqueradeBit,
    nodePortAddresses: nodePortRanges,
    localhostNodePorts: servesLocalhost(fixed, nodePortRanges),
    beLiberal,
    serviceComments: true,
  };
}
