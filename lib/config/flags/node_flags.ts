import type { Flag } from "../flag.ts";

/** Rows of the table in `flags.ts`. */
export const NODE_FLAGS = [
  {
    name: "hostname-override",
    type: "text",
    group: "Node and addresses",
    value: "NAME",
    field: "hostnameOverride",
    help: "name of this node, if it differs from the name of the machine",
    withConfig: "wins",
  },
  {
    name: "bind-address",
    type: "text",
    group: "Node and addresses",
    value: "IP",
    field: "bindAddress",
    help: "the node's own address, if the Node object has none; no socket is bound to it",
    withConfig: "ignored",
  },
  {
    name: "nodeport-addresses",
    type: "list",
    group: "Node and addresses",
    value: "CIDRS",
    field: "nodePortAddresses",
    help:
      "ranges of node addresses that serve node ports, or the words primary, localhost and all; " +
      "empty means all, and primary in nftables mode",
    withConfig: "ignored",
  },
  {
    name: "cluster-cidr",
    type: "text",
    group: "Node and addresses",
    value: "CIDR[,CIDR]",
    field: "clusterCIDR",
    help: "range of pod addresses, one for each IP family; traffic from it is traffic of pods",
    withConfig: "ignored",
  },
  {
    name: "detect-local-mode",
    type: "text",
    group: "Node and addresses",
    choices: ["", "ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix"],
    field: "detectLocalMode",
    help: "how traffic of pods is recognized",
    withConfig: "ignored",
  },
  {
    name: "pod-bridge-interface",
    type: "text",
    group: "Node and addresses",
    value: "NAME",
    field: "detectLocal.bridgeInterface",
    help: "bridge of the pods, for --detect-local-mode BridgeInterface",
    withConfig: "ignored",
  },
  {
    name: "pod-interface-name-prefix",
    type: "text",
    group: "Node and addresses",
    value: "PREFIX",
    field: "detectLocal.interfaceNamePrefix",
    help:
      "prefix of the names of the pods' interfaces, for --detect-local-mode InterfaceNamePrefix",
    withConfig: "ignored",
  },
  {
    name: "service-cidr",
    type: "list",
    group: "Node and addresses",
    value: "CIDRS",
    help: "ranges of cluster IPs, if the API server does not provide them (before 1.33, or with " +
      "--manifests); mode iptables then needs fewer rules",
    withConfig: "used",
  },
  {
    name: "external-ip-ranges",
    type: "list",
    group: "Node and addresses",
    value: "CIDRS",
    help:
      "ranges that the external IPs of Services must be in; others are refused, in every mode. " +
      "Without it a Service may have any external IP (kube-router: --service-external-ip-range)",
    withConfig: "used",
  },
  {
    name: "address-mode",
    type: "text",
    group: "Node and addresses",
    value: "MODE",
    choices: ["auto", "each", "anyip", "none"],
    default: "auto",
    help: "how Service addresses become local: one address each on lo, an AnyIP route for the " +
      "service ranges, not at all (only node ports and stand-ins on loopback), or the first of " +
      "these that works",
    withConfig: "used",
  },
] as const satisfies readonly Flag[];
