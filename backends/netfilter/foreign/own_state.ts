/**
 * What kube-relay itself has in the kernel, told apart from what kube-proxy left under the same names:
 * iptables mode takes over entry points as `KUBE-SERVICES`, ipvs mode the device and the sets.
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

/** Which names are in use by the mode that runs. A part that is left out: none is. */
export interface OwnState {
  chain?(place: ChainPlace): boolean;
  nftTable?(table: NftTable): boolean;
  set?(name: string): boolean;
  device?(name: string): boolean;
  /** Packet counters of nfacct. */
  counter?(): boolean;
}

/** Nothing of ours runs. */
export const OWN_NOTHING: OwnState = {};
