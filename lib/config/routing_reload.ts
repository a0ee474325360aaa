import { routingPartsOf } from "../routing/routing_settings.ts";
import { routingSettingsOf } from "./parse_routing.ts";
import type { RoutingConfiguration } from "./routing.ts";

/** The fields of the block `routing` that a running process can apply. */
export const APPLICABLE_ROUTING: readonly RegExp[] = [
  /^routing\.(loadBalancerClass|defaultLoadBalancerClass|announce|pools|layer2\.interfaces)$/,
  /^routing\.bgp\.(enabled|localAs|routerId|mesh|nodeAnnotations|peers|externalIpRanges)$/,
  /^routing\.bgp\.(communities|largeCommunities|localPreference|(advertise|imports)\..*)$/,
];

/** Fields that decide which parts exist. Pools need objects to be followed, with permissions. */
const FIELDS_OF_PARTS: readonly string[] = [
  "routing.announce",
  "routing.pools",
  "routing.bgp.enabled",
];

/**
 * Whether a changed field needs a part that the process does not have, such as Leases for the first
 * pool. A part without a task is kept.
 */
export function needsRoutingParts(
  field: string,
  { before, after }: {
    readonly before: RoutingConfiguration;
    readonly after: RoutingConfiguration;
  },
): boolean {
  if (!FIELDS_OF_PARTS.includes(field)) return false;
  const [present, needed] = [before, after].map((each) => routingPartsOf(routingSettingsOf(each)));
  return !needed!.isSubsetOf(present!);
}
