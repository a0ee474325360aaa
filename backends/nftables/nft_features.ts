import type { Feature } from "../netfilter/probe/try_features.ts";

/**
 * Statements to try. `{table}` stands for family and table, `{address}` for an address, `{type}`
 * for its type, `{ip}` for its protocol.
 */
interface NftFeature extends Feature {
  readonly statements: readonly string[];
}

/** A ServicePort, and a hash of the sender. */
const CLIENT = "meta priority and 0xbfff8000 . jhash {ip} saddr mod 64";

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
    feature: "maps with concatenated keys",
    required: true,
    statements: [
      "add map {table} services { type {type} . inet_proto . inet_service : classid ; }",
      "add element {table} services { {address} . tcp . 80 : 0x80000001 }",
    ],
    lost: "Services cannot be looked up",
    broughtBy: "modprobe nft_set_hash, or a kernel with CONFIG_NF_TABLES (5.6 or newer)",
  },
  {
    feature: "numbers in the priority of packets",
    required: true,
    statements: [
      "add map {table} fronts { type {type} . inet_proto . inet_service : classid ; }",
      "add map {table} numbers { type classid : verdict ; }",
      "add chain {table} target",
      "add element {table} numbers { 0x80000001 : goto target }",
      "add rule {table} probe meta priority set {ip} daddr . meta l4proto . th dport map @fronts " +
      "meta priority vmap @numbers",
      "add rule {table} probe meta priority and 0x80000000 != 0 meta priority set 0",
    ],
    lost: "Lookups cannot be chained",
    broughtBy: "nftables 1.0.1 or newer and a kernel with CONFIG_NF_TABLES (5.13 or newer)",
  },
  {
    feature: "numgen",
    required: true,
    statements: [
      "add rule {table} probe meta priority set numgen random mod 2 offset 2147483648",
    ],
    lost: "A Service with several endpoints would use only the first",
    broughtBy: "modprobe nft_numgen, or a kernel with CONFIG_NFT_NUMGEN",
  },
  {
    feature: "dnat to an entry of a map",
    required: true,
    statements: [
      "add map {table} endpoints { type {type} . inet_proto . inet_service . classid : " +
      "{type} . inet_service ; }",
      "add rule {table} probe dnat {ip} addr . port to {ip} daddr . meta l4proto . th dport . " +
      "meta priority map @endpoints",
    ],
    lost: "Nothing can be forwarded",
    broughtBy: "nftables 1.0.1 or newer, and modprobe nft_nat or a kernel with CONFIG_NFT_NAT",
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
    lost: "Connections to Services without endpoints time out instead of being refused",
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
      "add map {table} clients { typeof meta priority . numgen random mod 2 : meta priority ; " +
      "flags dynamic,timeout ; size 64 ; }",
      "add map {table} slots { type {type} . classid : {type} . inet_service ; }",
      `add rule {table} probe meta priority set ${CLIENT} map @clients ` +
      `update @clients { ${CLIENT} timeout 60s : meta priority } ` +
      "meta priority set meta priority or 0x40000000 {ip} daddr . meta priority @slots",
      `add rule {table} probe delete @clients { ${CLIENT} : meta priority }`,
    ],
    lost: "Services with sessionAffinity ClientIP are put in quarantine",
    broughtBy: "modprobe nft_hash, or a kernel with CONFIG_NFT_HASH",
  },
];
