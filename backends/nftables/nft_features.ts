/**
 * What the rules of the nftables mode need of `nft` and the kernel.
 *
 * @module
 */
import type { NftFeature } from "../netfilter/probe/nft_trial.ts";

/** Each is tried alone: none uses the objects of another. */
export const NFT_FEATURES: readonly NftFeature[] = [
  {
    feature: "base chains of type nat",
    required: true,
    statements: [
      "add chain {table} nat-pre { type nat hook prerouting priority -100 ; }",
      "add chain {table} nat-out { type nat hook output priority -100 ; }",
      "add chain {table} nat-post { type nat hook postrouting priority 100 ; }",
    ],
    lost: "Nothing can be forwarded",
    broughtBy: "modprobe nft_chain_nat, or a kernel with CONFIG_NFT_NAT",
  },
  {
    feature: "base chains of type filter",
    required: true,
    statements: [
      "add chain {table} filter-in { type filter hook input priority -110 ; }",
      "add chain {table} filter-forward { type filter hook forward priority -110 ; }",
    ],
    lost: "Source ranges, and refusals for Services without endpoints",
    broughtBy: "a kernel with CONFIG_NF_TABLES_IPV4 (CONFIG_NF_TABLES_IPV6)",
  },
  {
    feature: "maps with concatenated keys",
    required: true,
    statements: [
      "add map {table} services { type {type} . inet_proto . inet_service : verdict ; }",
      "add element {table} services { {address} . tcp . 80 : goto probe }",
      "add rule {table} probe {ip} daddr . meta l4proto . th dport vmap @services",
    ],
    lost: "Services cannot be looked up",
    broughtBy: "modprobe nft_set_hash, or a kernel with CONFIG_NF_TABLES (5.6 or newer)",
  },
  {
    feature: "numgen",
    required: true,
    statements: ["add rule {table} probe numgen random mod 2 vmap { 0 : accept , 1 : drop }"],
    lost: "A Service with several endpoints would use only the first",
    broughtBy: "modprobe nft_numgen, or a kernel with CONFIG_NFT_NUMGEN",
  },
  {
    feature: "dnat to an address and port",
    required: true,
    statements: ["add rule {table} probe meta l4proto tcp dnat to {endpoint}"],
    lost: "Nothing can be forwarded",
    broughtBy: "modprobe nft_nat, or a kernel with CONFIG_NFT_NAT",
  },
  {
    feature: "dnat to an entry of a map",
    required: true,
    statements: [
      "add rule {table} probe meta l4proto tcp dnat to numgen random mod 1 map { 0 : {address} . 80 }",
    ],
    lost: "Endpoints cannot be chosen by one rule",
    broughtBy: "nftables 1.0.1 or newer and a kernel with CONFIG_NFT_NAT",
  },
  {
    feature: "masquerade",
    required: true,
    statements: ["add rule {table} probe masquerade fully-random"],
    lost: "Replies to clients outside the cluster get lost",
    broughtBy: "modprobe nft_masq, or a kernel with CONFIG_NFT_MASQ",
  },
  {
    feature: "packet marks",
    required: true,
    statements: ["add rule {table} probe meta mark set mark or 0x4000"],
    lost: "Masquerading: replies to clients outside the cluster get lost",
    broughtBy: "a kernel with CONFIG_NF_TABLES",
  },
  {
    feature: "fib",
    required: true,
    statements: ["add rule {table} probe fib daddr type local accept"],
    lost: "Node ports",
    broughtBy: "modprobe nft_fib_ipv4 (nft_fib_ipv6), or a kernel with CONFIG_NFT_FIB_IPV4 " +
      "(CONFIG_NFT_FIB_IPV6)",
  },
  {
    feature: "ct status",
    required: true,
    statements: ["add rule {table} probe ct status dnat accept"],
    lost: "An endpoint cannot be sent its own connections",
    broughtBy: "modprobe nft_ct, or a kernel with CONFIG_NFT_CT",
  },
  {
    feature: "reject",
    required: false,
    statements: [
      "add chain {table} refuse { type nat hook prerouting priority -100 ; }",
      "add rule {table} refuse reject",
    ],
    lost: "Connections to Services without endpoints time out in place of being refused",
    broughtBy: "modprobe nft_reject_ipv4 (nft_reject_ipv6), or a kernel with CONFIG_NFT_REJECT",
  },
  {
    feature: "ranges in concatenated keys",
    required: true,
    statements: [
      "add set {table} sources { type {type} . inet_service . {type} ; flags interval ; }",
      "add rule {table} probe {ip} daddr . th dport . {ip} saddr @sources accept",
    ],
    lost: "Source ranges of load balancers",
    broughtBy: "a kernel with CONFIG_NF_TABLES (5.6 or newer)",
  },
  {
    feature: "maps filled by rules",
    required: false,
    statements: [
      "add map {table} clients { typeof numgen random mod 2 : meta priority ; " +
      "flags dynamic,timeout ; size 64 ; }",
      "add map {table} slots { type {type} . classid : {type} . inet_service ; }",
      "add rule {table} probe meta priority set jhash {ip} saddr mod 64 map @clients " +
      "{ip} daddr . meta priority @slots " +
      "update @clients { jhash {ip} saddr mod 64 timeout 60s : meta priority }",
      "add rule {table} probe delete @clients { jhash {ip} saddr mod 64 : meta priority }",
    ],
    lost: "Services with sessionAffinity ClientIP are put in quarantine",
    broughtBy: "modprobe nft_hash, or a kernel with CONFIG_NFT_HASH",
  },
];
