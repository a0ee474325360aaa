/**
 * Identifies the owner of a chain by table and name. The names are those of Kubernetes 1.36 and of
 * earlier releases whose leftovers still occur.
 *
 * @module
 */

/** The software that creates chains of a name. */
export type ChainOwner =
  | "kube-proxy"
  | "kubelet"
  | "kube-router"
  | "portmap"
  | "calico"
  | "cilium";

/** A chain, or all chains of a kind. */
interface KnownChain {
  readonly owner: ChainOwner;
  /** The name, or the prefix with an ellipsis, for messages. */
  readonly label: string;
  /** Whether one exists for each Service or endpoint. */
  readonly perService: boolean;
}

/** 16 characters of base32, as kube-proxy ends the names of a Service's chains. */
const HASH = /^[A-Z2-7]{16}$/;

const PER_SERVICE = ["KUBE-FW-", "KUBE-EXT-", "KUBE-XLB-", "KUBE-SVC-", "KUBE-SVL-", "KUBE-SEP-"];

/**
 * kube-proxy's chains of fixed name in iptables mode; some are ipvs mode's too. `KUBE-FIREWALL` is not
 * among them: it is kubelet's as well.
 */
const IPTABLES_MODE: Readonly<Record<string, readonly string[]>> = {
  nat: [
    "KUBE-SERVICES",
    "KUBE-NODEPORTS",
    "KUBE-POSTROUTING",
    "KUBE-MARK-MASQ",
    "KUBE-PROXY-CANARY",
  ],
  filter: [
    "KUBE-SERVICES",
    "KUBE-EXTERNAL-SERVICES",
    "KUBE-NODEPORTS",
    "KUBE-FORWARD",
    "KUBE-PROXY-FIREWALL",
    "KUBE-PROXY-CANARY",
  ],
  mangle: ["KUBE-PROXY-CANARY"],
};

/** Chains that iptables mode does not have. */
const OTHER_MODES: Readonly<Record<string, readonly string[]>> = {
  nat: [
    // ipvs mode
    "KUBE-NODE-PORT",
    "KUBE-LOAD-BALANCER",
    // userspace mode, until 1.25
    "KUBE-PORTALS-CONTAINER",
    "KUBE-PORTALS-HOST",
    "KUBE-NODEPORT-CONTAINER",
    "KUBE-NODEPORT-HOST",
  ],
  filter: [
    // ipvs mode
    "KUBE-NODE-PORT",
    "KUBE-SOURCE-RANGES-FIREWALL",
    "KUBE-IPVS-FILTER",
    "KUBE-IPVS-OUT-FILTER",
    // userspace mode, until 1.25
    "KUBE-NODEPORT-NON-LOCAL",
  ],
};

const KUBELET = ["KUBE-FIREWALL", "KUBE-KUBELET-CANARY", "KUBE-IPTABLES-HINT", "KUBE-MARK-DROP"];

const OTHERS: readonly (readonly [ChainOwner, string])[] = [
  ["kube-router", "KUBE-ROUTER-"],
  ["kube-router", "KUBE-POD-FW-"],
  ["kube-router", "KUBE-NWPLCY-"],
  ["portmap", "CNI-HOSTPORT-"],
  ["calico", "cali-"],
  ["cilium", "CILIUM_"],
  ["cilium", "OLD_CILIUM_"],
];

/** Returns the owner of a chain; undefined if unknown. */
export function knownChain(table: string, chain: string): KnownChain | undefined {
  const prefix = table === "nat" ? PER_SERVICE.find((name) => chain.startsWith(name)) : undefined;
  if (prefix !== undefined && HASH.test(chain.slice(prefix.length))) {
    return { owner: "kube-proxy", label: `${prefix}…`, perService: true };
  }
  if (IPTABLES_MODE[table]?.includes(chain) || isOfOtherModes(table, chain)) {
    return { owner: "kube-proxy", label: chain, perService: false };
  }
  if (KUBELET.includes(chain)) return { owner: "kubelet", label: chain, perService: false };
  const other = OTHERS.find(([, start]) => chain.startsWith(start));
  return other && { owner: other[0], label: `${other[1]}…`, perService: false };
}

/** Whether kube-proxy creates such a chain only in its ipvs or userspace mode. */
export function isOfOtherModes(table: string, chain: string): boolean {
  return OTHER_MODES[table]?.includes(chain) === true;
}

/** Whether only kube-proxy creates such a chain. */
export function isKubeProxyChain(table: string, chain: string): boolean {
  return knownChain(table, chain)?.owner === "kube-proxy";
}
