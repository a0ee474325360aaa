/**
 * Flags of NetworkPolicy. kube-proxy has neither these flags nor their fields.
 *
 * @module
 */
import { NETWORK_POLICY_CHOICES, NETWORK_POLICY_LIMITS } from "../network_policy.ts";
import type { Flag } from "../flag.ts";

/** Rows of the table in `flags.ts`. */
export const POLICY_FLAGS = [
  {
    name: "network-policy",
    type: "boolean",
    group: "Network policy",
    field: "networkPolicy.enabled",
    help: "enforce NetworkPolicies for the pods of this node",
    withConfig: "wins",
  },
  {
    name: "network-policy-mode",
    type: "text",
    group: "Network policy",
    value: "MODE",
    choices: NETWORK_POLICY_CHOICES.mode,
    field: "networkPolicy.mode",
    help: "nftables, iptables, or auto for the first of these that the host supports; works " +
      "together with every --proxy-mode. kube-relay never replaces a mode that you name",
    withConfig: "wins",
  },
  {
    name: "network-policy-start",
    type: "text",
    group: "Network policy",
    value: "WORD",
    choices: NETWORK_POLICY_CHOICES.start,
    field: "networkPolicy.start",
    help: "traffic of a pod of this node before its rules are written: open lets everything " +
      "through, closed lets only traffic from its node through",
    withConfig: "wins",
  },
  {
    name: "network-policy-deny",
    type: "text",
    group: "Network policy",
    value: "WORD",
    choices: NETWORK_POLICY_CHOICES.deny,
    field: "networkPolicy.deny",
    help: "answer to denied traffic: reject sends a TCP reset or an ICMP error, drop sends nothing",
    withConfig: "wins",
  },
  {
    name: "network-policy-log",
    type: "integer",
    group: "Network policy",
    value: "N",
    minimum: 0,
    maximum: NETWORK_POLICY_LIMITS.logPerMinute,
    field: "networkPolicy.logPerMinute",
    help:
      "log at most this many denied packets of each pod per minute, with the name of the pod, " +
      "through NFLOG; 0 logs none",
    withConfig: "wins",
  },
  {
    name: "network-policy-log-group",
    type: "integer",
    group: "Network policy",
    value: "GROUP",
    minimum: 0,
    maximum: NETWORK_POLICY_LIMITS.logGroup,
    field: "networkPolicy.logGroup",
    help: "NFLOG group of --network-policy-log, for ulogd or 'tcpdump -i nflog:GROUP'",
    withConfig: "wins",
  },
  {
    name: "network-policy-cut-connections",
    type: "boolean",
    group: "Network policy",
    field: "networkPolicy.cutConnections",
    help: "end open connections that the policies no longer allow",
    withConfig: "wins",
  },
  {
    name: "network-policy-min-sync-period",
    type: "duration",
    group: "Network policy",
    field: "networkPolicy.minSyncPeriod",
    help: "shortest time from the end of one sync of policies to the next; two changes after a " +
      "quiet time do not wait",
    withConfig: "wins",
  },
  {
    name: "policy-kubeconfig",
    type: "text",
    group: "Network policy",
    value: "FILE",
    field: "networkPolicy.kubeconfig",
    help: "kubeconfig whose identity may list and watch pods, namespaces and networkpolicies; " +
      "the default is the connection that is used for Services",
    withConfig: "wins",
  },
] as const satisfies readonly Flag[];
