/**
 * The objects of kube-relay in the kernel that have the same names as kube-proxy's: iptables mode
 * uses entry points such as `KUBE-SERVICES`, ipvs mode the device and the sets.
 *
 * @module
 */
import type { NftTable } from "../nft/nft_objects.ts";
import type { IptablesRuleSet } from "../iptables/iptables_rule_set.ts";

/** A chain and where it is. */
export interface ChainPlace {
  readonly world: IptablesRuleSet;
  readonly table: string;
  readonly chain: string;
}

/** The names in use by the running mode. An absent part means none. */
export interface OwnState {
  chain?(place: ChainPlace): boolean;
  nftTable?(table: NftTable): boolean;
  set?(name: string): boolean;
  device?(name: string): boolean;
  /** Packet counters of nfacct. */
  counter?(): boolean;
}

/** No running mode. */
export const OWN_NOTHING: OwnState = {};
