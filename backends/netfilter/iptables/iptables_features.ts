/**
 * The kernel features that rules of iptables need: the rows from which the modes built on iptables
 * choose.
 *
 * @module
 */
import type { RuleFeature } from "../probe/iptables_trial.ts";

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

/** Mode table rows by short name. Addresses that differ by family are written as `{destination}`. */
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
  physdev: {
    feature: "match physdev",
    required: false,
    table: "nat",
    rule: "-m physdev ! --physdev-is-in",
    lost: "Traffic of pods on a bridge to external IPs is not recognized",
    broughtBy: match("physdev"),
  },
  ipvs: {
    feature: "match ipvs",
    required: false,
    table: "filter",
    rule: "-m ipvs --vaddr {address}/{bits} --vproto tcp --vport 80",
    lost: "Source ranges of load balancers do not apply to the node's own traffic",
    broughtBy: kernelPart("xt_ipvs", "NETFILTER_XT_MATCH_IPVS"),
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
