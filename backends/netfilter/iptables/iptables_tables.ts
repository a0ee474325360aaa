/**
 * The tables of iptables, as things that a kernel may lack.
 *
 * @module
 */
import type { TableFeature } from "./probe_iptables.ts";

const NAT: TableFeature = {
  feature: "table nat",
  table: "nat",
  required: true,
  lost: "Nothing can be forwarded",
  broughtBy: "modprobe iptable_nat (ip6table_nat), or a kernel with CONFIG_NF_NAT and " +
    "CONFIG_NFT_COMPAT (iptables-nft) or CONFIG_IP_NF_NAT (iptables-legacy)",
};

const FILTER: TableFeature = {
  feature: "table filter",
  table: "filter",
  required: true,
  lost: "Source ranges, and refusals for Services without endpoints",
  broughtBy: "modprobe iptable_filter (ip6table_filter), or a kernel with CONFIG_NFT_COMPAT " +
    "(iptables-nft) or CONFIG_IP_NF_FILTER (iptables-legacy)",
};

const MANGLE: TableFeature = {
  feature: "table mangle",
  table: "mangle",
  required: false,
  lost: "Rules that another program flushed are repaired late",
  broughtBy: "modprobe iptable_mangle (ip6table_mangle), or a kernel with CONFIG_IP_NF_MANGLE",
};

/**
 * The tables to which rules are written, and the table that shows whether a program flushed them.
 */
export const IPTABLES_TABLES: readonly TableFeature[] = [NAT, FILTER, MANGLE];
