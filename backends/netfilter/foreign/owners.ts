/**
 * The software whose objects may be in the kernel: one table of the chains, tables of nftables, ipsets and
 * devices that each creates. `doctor` and a start report them by it, `cleanup` and `--takeover` remove
 * them by it. The names are those of Kubernetes 1.36 and of earlier releases whose leftovers still occur.
 *
 * @module
 */
import { IPVS_DEVICE, KUBE_ROUTER_DEVICE } from "../../iproute/dummy_devices.ts";
import type { NftTable } from "../nft/nft_objects.ts";
import { MAX_SET_NAME_LENGTH } from "../ipset/ipset_text.ts";

/** What only one program creates. An absent part means none. */
export interface Owned {
  /** The name of a chain for messages, or its prefix with an ellipsis; `undefined` = it is another's. */
  chain?(table: string, chain: string): string | undefined;
  nftTable?(table: NftTable): boolean;
  set?(name: string): boolean;
  readonly device?: string;
  /** For messages. */
  readonly name?: string;
  /** Of an enforcer of NetworkPolicies whose rules kube-relay never changes: the finding and its remedy. */
  readonly enforcer?: { readonly id: string; readonly cure: string };
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

/** The sets' names after `KUBE-` (IPv4) or `KUBE-6-` (IPv6, cut to 31 characters). */
const SETS: readonly string[] = [
  "LOOP-BACK",
  "CLUSTER-IP",
  "EXTERNAL-IP",
  "EXTERNAL-IP-LOCAL",
  "LOAD-BALANCER",
  "LOAD-BALANCER-LOCAL",
  "LOAD-BALANCER-FW",
  "LOAD-BALANCER-SOURCE-CIDR",
  "LOAD-BALANCER-SOURCE-IP",
  "NODE-PORT-TCP",
  "NODE-PORT-UDP",
  "NODE-PORT-LOCAL-TCP",
  "NODE-PORT-LOCAL-UDP",
  "NODE-PORT-SCTP-HASH",
  "NODE-PORT-LOCAL-SCTP-HASH",
  "NODE-PORT-SCTP",
  "NODE-PORT-LOCAL-SCTP",
  "HEALTH-CHECK-NODE-PORT",
  "IPVS-IPS",
];

const KUBE_PROXY_SETS: ReadonlySet<string> = new Set(
  SETS.flatMap((name) => [`KUBE-${name}`, `KUBE-6-${name}`.slice(0, MAX_SET_NAME_LENGTH)]),
);

const KUBELET = ["KUBE-FIREWALL", "KUBE-KUBELET-CANARY", "KUBE-IPTABLES-HINT", "KUBE-MARK-DROP"];

/** Chains whose names begin so. */
function prefixed(...prefixes: readonly string[]): NonNullable<Owned["chain"]> {
  return (_, chain) => {
    const prefix = prefixes.find((each) => chain.startsWith(each));
    return prefix && `${prefix}…`;
  };
}

/** Tables of this name, in these families. */
function tableNamed(wanted: string, ...families: readonly string[]) {
  return ({ family, name }: NftTable) => name === wanted && families.includes(family);
}

/** Names end with 16 characters of base32, or are one of a few. */
const POLICY_CHAIN =
  /^KUBE-(ROUTER-(INPUT|FORWARD|OUTPUT)|NWPLCY-(DEFAULT|COMMON|TAIL)|(POD-FW|NWPLCY)-[A-Z2-7]{16})$/;

/** `kube-router-local-pods` belongs to `--netpol-default-deny`; other `kube-router-` sets route. */
const POLICY_SET = /^(inet6:)?(KUBE-(SRC|DST)-[A-Z2-7]{16}|kube-router-local-pods)$/;

/**
 * The objects of kube-router's network policy controller alone. k3s runs the same controller inside its
 * own process. The tables are those of `--use-nftables-for-netpol`.
 */
export const KUBE_ROUTER_POLICIES = {
  chain: (table: string, chain: string) =>
    table === "filter" && POLICY_CHAIN.test(chain) ? chain : undefined,
  nftTable: (table: NftTable) =>
    tableNamed("kube-router-filter-ipv4", "ip")(table) ||
    tableNamed("kube-router-filter-ipv6", "ip6")(table),
  set: (name: string) => POLICY_SET.test(name),
} satisfies Owned;

/** The first owner of a chain counts. */
export const OWNERS = {
  "kube-proxy": {
    chain(table: string, chain: string): string | undefined {
      const prefix = table === "nat"
        ? PER_SERVICE.find((name) => chain.startsWith(name))
        : undefined;
      if (prefix !== undefined && HASH.test(chain.slice(prefix.length))) return `${prefix}…`;
      const isFixed = IPTABLES_MODE[table]?.includes(chain) || isOfOtherModes(table, chain);
      return isFixed ? chain : undefined;
    },
    // It contains all rules of nftables mode.
    nftTable: tableNamed("kube-proxy", "ip", "ip6"),
    set: isKubeProxySet,
    device: IPVS_DEVICE,
  },
  kubelet: {
    chain: (_, chain) => KUBELET.includes(chain) ? chain : undefined,
  },
  "kube-router": {
    name: "kube-router",
    chain: prefixed("KUBE-ROUTER-", "KUBE-POD-FW-", "KUBE-NWPLCY-"),
    nftTable: KUBE_ROUTER_POLICIES.nftTable,
    set: (name) => /^(inet6:)?(kube-router-|KUBE-(SRC|DST)-[A-Z2-7]{16}$)/.test(name),
    device: KUBE_ROUTER_DEVICE,
  },
  portmap: { chain: prefixed("CNI-HOSTPORT-") },
  calico: {
    name: "Calico",
    chain: prefixed("cali-"),
    // Its nftables mode.
    nftTable: tableNamed("calico", "ip", "ip6"),
    set: (name) => /^cali[46]0/.test(name),
    enforcer: {
      id: "calico-policies",
      cure: "leave --network-policy off where Calico runs; if it is gone, reboot the node, which " +
        "removes its rules",
    },
  },
  cilium: {
    name: "Cilium",
    chain: prefixed("CILIUM_", "OLD_CILIUM_"),
    enforcer: {
      id: "cilium-policies",
      cure: "leave --network-policy off, or run Cilium with enable-policy=never; if it is gone, " +
        "reboot the node, which removes its rules",
    },
  },
  "kube-network-policies": {
    name: "kube-network-policies",
    nftTable: tableNamed("kube-network-policies", "inet"),
    enforcer: {
      id: "kube-network-policies",
      cure:
        "delete its DaemonSet, then run 'nft delete table inet kube-network-policies' on each node",
    },
  },
  // Its tables and the first chain of its policies. Those of pods and traces belong to no mode.
  "kube-relay": {
    chain: (_, chain) => chain === "KUBE-RELAY-POLICY" ? chain : undefined,
    nftTable: ({ name }) =>
      ["kube-relay", "kube-relay-counters", "kube-relay-policy"].includes(name),
  },
} as const satisfies Readonly<Record<string, Owned>>;

/** The name of an owner. */
export type Owner = keyof typeof OWNERS;

/** All owners, with what each creates. */
export const OWNER_ENTRIES = Object.entries(OWNERS) as [Owner, Owned][];

/** Returns the owner of a chain, and its name for messages; undefined if unknown. */
export function knownChain(
  table: string,
  chain: string,
): { readonly owner: Owner; readonly label: string } | undefined {
  for (const [owner, owned] of OWNER_ENTRIES) {
    const label = owned.chain?.(table, chain);
    if (label !== undefined) return { owner, label };
  }
  return undefined;
}

/** Formats chains of one kind for messages: `412 chains KUBE-SVC-…`, or `chain KUBE-SERVICES`. */
export function countOf(label: string, count: number): string {
  return label.endsWith("…")
    ? `${count} chain${count === 1 ? "" : "s"} ${label}`
    : `chain ${label}`;
}

/** Whether kube-proxy creates such a chain only in its ipvs or userspace mode. */
export function isOfOtherModes(table: string, chain: string): boolean {
  return OTHER_MODES[table]?.includes(chain) === true;
}

/** Whether only kube-proxy creates a set of this name. */
export function isKubeProxySet(name: string): boolean {
  return KUBE_PROXY_SETS.has(name);
}
