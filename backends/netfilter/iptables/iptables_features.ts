/**
 * The kernel features that rules of iptables need: the rows from which the modes built on iptables
 * choose.
 *
 * @module
 */
import type { Feature } from "../probe/try_features.ts";

/** A rule of one table, without `-A` and the chain. */
export interface RuleFeature extends Feature {
  readonly table: string;
  readonly rule: string;
}

/** A table of iptables. */
export interface TableFeature extends Feature {
  readonly table: string;
}

/** The packet counter of packets that are dropped because conntrack finds them invalid. */
export const INVALID_COUNTER = "ct_state_invalid_dropped_pkts";
/** The packet counter of connections to node ports on 127.0.0.0/8. */
export const LOCALHOST_COUNTER = "localhost_nps_accepted_pkts";

/** Returns the remedy for an administrator: a module to load, or a kernel option. */
function kernelPart(module: string, option: string): string {
  return `modprobe ${module}, or a kernel with CONFIG_${option}`;
}

function match(name: string): string {
  return kernelPart(`xt_${name}`, `NETFILTER_XT_MATCH_${name.toUpperCase()}`);
}

/** Rows by short name. An address that differs by family is written as `{destination}`. */
export const RULE_FEATURES = {
  comment: {
    feature: "match comment",
    required: false,
    table: "filter",
    rule: '-m comment --comment "kube-relay probe"',
    lost: "Rules do not name their Services",
    broughtBy: match("comment"),
  },
  conntrack: {
    feature: "match conntrack",
    required: true,
    table: "filter",
    rule: "-m conntrack --ctstate NEW",
    lost: "Established connections cannot be distinguished from new ones",
    broughtBy: match("conntrack"),
  },
  addrtype: {
    feature: "match addrtype",
    required: true,
    table: "nat",
    rule: "-m addrtype --dst-type LOCAL",
    lost: "Node ports and the node's own traffic to load balancers",
    broughtBy: match("addrtype"),
  },
  mark: {
    feature: "match mark",
    required: true,
    table: "filter",
    rule: "-m mark --mark 0x4000/0x4000",
    lost: "Masquerading: replies to clients outside the cluster get lost",
    broughtBy: kernelPart("xt_mark", "NETFILTER_XT_MARK"),
  },
  statistic: {
    feature: "match statistic",
    required: true,
    table: "nat",
    rule: "-m statistic --mode random --probability 0.5",
    lost: "A Service with several endpoints would use only the first",
    broughtBy: match("statistic"),
  },
  sctp: {
    feature: "match sctp",
    required: false,
    table: "nat",
    rule: "-p sctp -m sctp --dport 80",
    lost: "Services with protocol SCTP are put in quarantine",
    broughtBy: match("sctp"),
  },
  recent: {
    feature: "match recent",
    required: false,
    table: "nat",
    rule: "-m recent --name KUBE-RELAY-PROBE --rcheck --seconds 10 --reap",
    lost: "Services with sessionAffinity ClientIP are put in quarantine",
    broughtBy: match("recent"),
  },
  nfacct: {
    feature: "match nfacct",
    required: false,
    table: "filter",
    rule: `-m nfacct --nfacct-name ${INVALID_COUNTER} -m nfacct --nfacct-name ${LOCALHOST_COUNTER}`,
    lost: "Two packet counters of the metrics; the rules themselves stay",
    broughtBy: "a kernel with CONFIG_NETFILTER_NETLINK_ACCT and CONFIG_NETFILTER_XT_MATCH_NFACCT",
  },
  dnat: {
    feature: "target DNAT",
    required: true,
    table: "nat",
    rule: "-p tcp -j DNAT --to-destination {destination}",
    lost: "Nothing can be forwarded",
    broughtBy: kernelPart("xt_nat", "NETFILTER_XT_NAT"),
  },
  markTarget: {
    feature: "target MARK",
    required: true,
    table: "nat",
    rule: "-j MARK --or-mark 0x4000",
    lost: "Masquerading: replies to clients outside the cluster get lost",
    broughtBy: kernelPart("xt_mark", "NETFILTER_XT_MARK"),
  },
  masquerade: {
    feature: "target MASQUERADE",
    required: true,
    table: "nat",
    rule: "-j MASQUERADE",
    lost: "Replies to clients outside the cluster get lost",
    broughtBy: kernelPart("xt_MASQUERADE", "NETFILTER_XT_TARGET_MASQUERADE"),
  },
  randomFully: {
    feature: "MASQUERADE --random-fully",
    required: false,
    table: "nat",
    rule: "-j MASQUERADE --random-fully",
    lost:
      "Under load two connections may be given one source port; one of them fails and is retried",
    broughtBy: "iptables 1.6.2 and kernel 3.13 or newer",
  },
  reject: {
    feature: "target REJECT",
    required: false,
    table: "filter",
    rule: "-j REJECT",
    lost: "Connections to Services without endpoints time out instead of being refused",
    broughtBy: kernelPart("ipt_REJECT (ip6t_REJECT)", "IP_NF_TARGET_REJECT (IP6_NF_TARGET_REJECT)"),
  },
} as const satisfies Readonly<Record<string, RuleFeature>>;

/**
 * The tables to which rules are written, and the table that shows whether a program flushed them.
 */
export const IPTABLES_TABLES: readonly TableFeature[] = [
  {
    feature: "table nat",
    table: "nat",
    required: true,
    lost: "Nothing can be forwarded",
    broughtBy: "modprobe iptable_nat (ip6table_nat), or a kernel with CONFIG_NF_NAT and " +
      "CONFIG_NFT_COMPAT (iptables-nft) or CONFIG_IP_NF_NAT (iptables-legacy)",
  },
  {
    feature: "table filter",
    table: "filter",
    required: true,
    lost: "Source ranges, and refusals for Services without endpoints",
    broughtBy: "modprobe iptable_filter (ip6table_filter), or a kernel with CONFIG_NFT_COMPAT " +
      "(iptables-nft) or CONFIG_IP_NF_FILTER (iptables-legacy)",
  },
  {
    feature: "table mangle",
    table: "mangle",
    required: false,
    lost: "Rules that another program flushed are repaired late",
    broughtBy: "modprobe iptable_mangle (ip6table_mangle), or a kernel with CONFIG_IP_NF_MANGLE",
  },
];
