/**
 * The objects of each mode that have names of kube-proxy.
 *
 * @module
 */
import { IP_FAMILIES } from "../../../lib/net/ip_address.ts";
import type { CommandRunner } from "../../../lib/os/command_runner.ts";
import type { BackendMode } from "../../../lib/proxy/backend.ts";
import { chooseIptables } from "../iptables/iptables_variant.ts";
import { nameOfRuleSet } from "../iptables/iptables_rule_set.ts";
import { isOfOtherModes } from "./known_chains.ts";
import { type ChainPlace, OWN_NOTHING, type OwnState } from "./own_state.ts";

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
