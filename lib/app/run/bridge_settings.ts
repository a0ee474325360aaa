/**
 * The kernel settings that NetworkPolicy needs if pods are ports of a bridge. Without them, traffic
 * between such pods bypasses all rules of iptables and nftables.
 *
 * @module
 */
import type { HostSettingRequest } from "../../proxy/host_setting.ts";

const PURPOSE = "apply NetworkPolicies to traffic between pods on one bridge of this node";

/**
 * The settings exist if the module br_netfilter is loaded. In spite of their names, they also apply
 * to nftables. Every run sets both, because a pod may have both families.
 */
export const BRIDGE_SETTINGS: readonly HostSettingRequest[] = [
  { name: "net.bridge.bridge-nf-call-iptables", value: "1", purpose: PURPOSE },
  { name: "net.bridge.bridge-nf-call-ip6tables", value: "1", purpose: PURPOSE },
];
