/**
 * The kernel settings that NetworkPolicy needs where pods are ports of a bridge. Without them such
 * pods reach each other past every rule of iptables and nftables.
 *
 * @module
 */
import type { HostSettingRequest } from "../../proxy/host_setting.ts";

const PURPOSE = "apply NetworkPolicies to traffic between pods on one bridge of this node";

/**
 * They exist once the module br_netfilter is loaded. In spite of its name the first one counts for
 * tables of nftables as well. Both are set in every run: a pod may have both families.
 */
export const BRIDGE_SETTINGS: readonly HostSettingRequest[] = [
  { name: "net.bridge.bridge-nf-call-iptables", value: "1", purpose: PURPOSE },
  { name: "net.bridge.bridge-nf-call-ip6tables", value: "1", purpose: PURPOSE },
];
