import type { Quarantined } from "../../lib/proxy/data_plane.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { LOCAL_OFFSET } from "./chain_spec.ts";
import type { NftablesFeatures } from "./render_options.ts";
import { pickableEndpoints } from "./slots.ts";

/** Why a ServicePort gets no rules; `undefined` = it does. */
export function unsupported(
  plan: ServicePlan,
  { affinity }: NftablesFeatures,
): Quarantined | undefined {
  const { key, affinityTimeoutSeconds, internal, external, externalFromCluster } = plan;
  const isSticky = affinityTimeoutSeconds !== undefined;
  const counts = [internal, external, externalFromCluster]
    .map((verdict) => verdict.kind === "forward" ? verdict.endpoints.length : 0);
  // Numbers are those of a list, but slots those of all lists together.
  const count = isSticky ? pickableEndpoints(plan).size : Math.max(...counts);
  if (isSticky && count > 0 && !affinity) {
    const reason = "Cannot express session affinity: the kernel lacks maps that rules can fill";
    return { key, reason };
  }
  if (count > LOCAL_OFFSET) {
    const reason =
      `Cannot choose among ${count} endpoints: the maps number ${LOCAL_OFFSET} of each ` +
      "Service at most";
    return { key, reason };
  }
  return undefined;
}
