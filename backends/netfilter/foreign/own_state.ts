/**
 * The objects of kube-relay in the kernel that have the same names as kube-proxy's: iptables mode
 * uses entry points such as `KUBE-SERVICES`, ipvs mode the device and the sets.
 *
 * @module
 */
import type { NftTable } from "../nft/nft_objects.ts";
import { type IptablesRuleSet, nameOfRuleSet } from "../iptables/iptables_rule_set.ts";
import { IP_FAMILIES } from "../../../lib/net/ip_address.ts";
import type { CommandRunner } from "../../../lib/os/command_runner.ts";
import type { BackendMode } from "../../../lib/proxy/backend.ts";
import { chooseIptables } from "../iptables/iptables_variant.ts";
import { isOfOtherModes } from "./owners.ts";

/** A chain and where it is. */
interface ChainPlace {
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
const OWN_NOTHING: OwnState = {};

/**
 * Returns the objects of a running mode. Modes that write iptables rules own every chain of such a
 * name in their rule set: they remove stale ones themselves, since only they can distinguish their
 * own from kube-proxy's.
 */
export async function ownStateOfMode(
  { commands }: { readonly commands: CommandRunner },
  { mode, signal }: { readonly mode: BackendMode | undefined; readonly signal?: AbortSignal },
): Promise<OwnState> {
  if (mode === "nftables") return { nftTable: ({ name }) => name.startsWith("kube-relay") };
  if (mode !== "iptables" && mode !== "ipvs") return OWN_NOTHING;
  const worlds = new Set<string>();
  for (const family of IP_FAMILIES) {
    const { programs } = await chooseIptables({ commands }, { family, signal });
    if (programs) worlds.add(nameOfRuleSet({ family, variant: programs.variant }));
  }
  const isInOurWorld = ({ world }: ChainPlace) => worlds.has(nameOfRuleSet(world));
  if (mode === "ipvs") return { chain: isInOurWorld, set: () => true, device: () => true };
  // Chains of ipvs mode refer to sets and a device that will be removed.
  return {
    chain: (place) => isInOurWorld(place) && !isOfOtherModes(place.table, place.chain),
    counter: () => true,
  };
}
