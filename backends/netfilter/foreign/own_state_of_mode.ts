/**
 * What each of our modes keeps in the kernel under names that kube-proxy has as well.
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
 * What a mode that runs keeps for itself. Modes that write iptables rules own every chain of such a name
 * in the rule set that they chose: what is stale there, of kube-proxy's or their own, they remove
 * themselves, since only they know which is which.
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
  // Of ipvs mode, which filters by sets and a device that go: nothing may refer to them.
  return {
    chain: (place) => isInOurWorld(place) && !isOfOtherModes(place.table, place.chain),
    counter: () => true,
  };
}
