/**
 * What a kernel cannot be told of a ServicePort. Pure.
 *
 * @module
 */
import type { Quarantined } from "../../lib/proxy/backend.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { LOCAL_OFFSET } from "./chain_spec.ts";
import type { NftablesFeatures } from "./render_options.ts";

/** Why a ServicePort gets no rules; `undefined` = it does. */
export function unsupported(
  { key, affinityTimeoutSeconds, internal, external, externalFromCluster }: ServicePlan,
  { affinity }: NftablesFeatures,
): Quarantined | undefined {
  const counts = [internal, external, externalFromCluster]
    .map((verdict) => verdict.kind === "forward" ? verdict.endpoints.length : 0);
  const count = Math.max(...counts);
  if (affinityTimeoutSeconds !== undefined && count > 0 && !affinity) {
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
