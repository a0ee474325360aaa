/**
 * The objects of kube-router's network policy controller. k3s runs the same controller inside its
 * own process, so its leftovers have the same names.
 *
 * @module
 */
import type { NftTable } from "../nft/nft_objects.ts";

/** Names end with 16 characters of base32, or are one of a few. */
const POLICY_CHAIN =
  /^KUBE-(ROUTER-(INPUT|FORWARD|OUTPUT)|NWPLCY-(DEFAULT|COMMON|TAIL)|(POD-FW|NWPLCY)-[A-Z2-7]{16})$/;

/** `kube-router-local-pods` belongs to `--netpol-default-deny`; other `kube-router-` sets route. */
const POLICY_SET = /^(inet6:)?(KUBE-(SRC|DST)-[A-Z2-7]{16}|kube-router-local-pods)$/;

const POLICY_TABLES: Readonly<Record<string, string>> = {
  "kube-router-filter-ipv4": "ip",
  "kube-router-filter-ipv6": "ip6",
};

/** Whether only the policy controller creates such a chain. */
export function isKubeRouterPolicyChain(table: string, chain: string): boolean {
  return table === "filter" && POLICY_CHAIN.test(chain);
}

/** The same for the name of an ipset. */
export function isKubeRouterPolicySet(name: string): boolean {
  return POLICY_SET.test(name);
}

/** The same for a table of nftables, as `--use-nftables-for-netpol` makes them. */
export function isKubeRouterPolicyTable({ family, name }: NftTable): boolean {
  return POLICY_TABLES[name] === family;
}
