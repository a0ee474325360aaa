/**
 * Flags about the node, its addresses and those of pods.
 *
 * @module
 */
import type { Flag } from "../flag.ts";

/** Rows of the table in `flags.ts`. */
export const NODE_FLAGS = [
  {
    name: "hostname-override",
    type: "text",
    group: "Node and addresses",
    value: "NAME",
    field: "hostnameOverride",
    help: "name of this node, where it is not the name of the machine",
    withConfig: "wins",
  },
  {
    name: "bind-address",
    type: "text",
    group: "Node and addresses",
    value: "IP",
    field: "bindAddress",
    help: "the node's own address where the Node object has none; nothing is bound to it",
    withConfig: "ignored",
  },
  {
    name: "nodeport-addresses",
    type: "list",
    group: "Node and addresses",
    value: "CIDRS",
    field: "nodePortAddresses",
    help:
      "ranges of node addresses that serve node ports, or the word primary; empty means all, and " +
      "primary in nftables mode",
    withConfig: "ignored",
  },
  {
    name: "cluster-cidr",
    type: "text",
    group: "Node and addresses",
    value: "CIDR[,CIDR]",
    field: "clusterCIDR",
    help:
      "range of pod addresses, one for each IP family; tells a pod's traffic from other traffic",
    withConfig: "ignored",
  },
  {
    name: "detect-local-mode",
    type: "text",
    group: "Node and addresses",
    choices: ["", "ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix"],
    field: "detectLocalMode",
    help: "how a pod's traffic is told from other traffic",
    withConfig: "ignored",
  },
  {
    name: "pod-bridge-interface",
    type: "text",
    group: "Node and addresses",
    value: "NAME",
    field: "detectLocal.bridgeInterface",
    help: "bridge that pods are attached to, for --detect-local-mode BridgeInterface",
    withConfig: "ignored",
  },
  {
    name: "pod-interface-name-prefix",
    type: "text",
    group: "Node and addresses",
    value: "PREFIX",
    field: "detectLocal.interfaceNamePrefix",
    help: "beginning of the names of pods' interfaces, for --detect-local-mode InterfaceNamePrefix",
    withConfig: "ignored",
  },
  {
    name: "service-cidr",
    type: "list",
    group: "Node and addresses",
    value: "CIDRS",
    help:
      "ranges that cluster IPs are taken from, where the API server does not tell (before 1.33, " +
      "or with --manifests)",
    withConfig: "used",
  },
  {
    name: "address-mode",
    type: "text",
    group: "Node and addresses",
    value: "MODE",
    choices: ["auto", "each", "anyip", "none"],
    default: "auto",
    help:
      "how Service addresses become local: one address each on lo, an AnyIP route for the service " +
      "ranges, not at all (node ports and stand-ins on loopback only), or the first that works",
    withConfig: "used",
  },
] as const satisfies readonly Flag[];
