/**
 * From settings, and what is known of the Node and the kernel now, to what rules depend on. Pure.
 *
 * @module
 */
import { cidrContains } from "../../lib/net/cidr.ts";
import { type IpFamily, parseIpAddress } from "../../lib/net/ip_address.ts";
import type { NodeSettings } from "../netfilter/rule_backend.ts";
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
  { nodePortAddresses }: NodeSettings,
): boolean {
  if (family !== "IPv4" || !localhostNodePorts) return false;
  return nodePortAddresses.kind === "all" ||
    nodePortAddresses.cidrs.some((cidr) => cidrContains(cidr, LOOPBACK));
}

/** Everything that rules depend on beside the plan. */
export function renderOptionsOf(
  fixed: FixedSettings,
  { features, beLiberal, ...node }: NodeSettings & KernelSettings,
): IptablesRenderOptions {
  const { family, masqueradeBit } = fixed;
  return {
    family,
    features,
    masqueradeBit,
    nodePortAddresses: node.nodePortAddresses,
    localhostNodePorts: servesLocalhost(fixed, node),
    ...(node.nodeIp !== undefined && { nodeIp: node.nodeIp }),
    beLiberal,
    serviceComments: true,
  };
}
