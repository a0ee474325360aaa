import type { Quarantined } from "../../lib/proxy/data_plane.ts";
import { keepsClientAddress } from "../../lib/proxy/frontend.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import type { IptablesFeatures } from "./render_options.ts";

/** The parts of a ServicePort that get no rules, and why. */
interface Unsupported {
  /** Whether the whole ServicePort is unsupported. */
  readonly everything: boolean;
  /** Whether its external addresses and node port are unsupported. */
  readonly external: boolean;
  readonly quarantined: readonly Quarantined[];
}

const NOTHING: Unsupported = { everything: false, external: false, quarantined: [] };

/** Returns the parts of a ServicePort that these features cannot express. */
export function unsupportedParts(plan: ServicePlan, features: IptablesFeatures): Unsupported {
  const reason = reasonAgainstAll(plan, features);
  if (reason !== undefined) {
    return { everything: true, external: true, quarantined: [{ key: plan.key, reason }] };
  }
  if (features.addrtype || !keepsClientAddress(plan)) {
    return NOTHING;
  }
  const { key } = plan;
  return {
    everything: false,
    external: true,
    quarantined: [{
      key,
      address: "external addresses",
      reason: missing("addrtype", "external traffic policy Local, which treats the node apart"),
    }],
  };
}

function reasonAgainstAll(plan: ServicePlan, features: IptablesFeatures): string | undefined {
  if (plan.protocol === "SCTP" && !features.sctp) return missing("sctp", "ports of SCTP");
  const forwards = [plan.internal, plan.external, plan.externalFromCluster]
    .filter((verdict) => verdict.kind === "forward");
  if (!features.statistic && forwards.some(({ endpoints }) => endpoints.length > 1)) {
    return missing("statistic", "a choice between endpoints");
  }
  if (!features.recent && plan.affinityTimeoutSeconds !== undefined && forwards.length > 0) {
    return missing("recent", "session affinity");
  }
  return undefined;
}

function missing(extension: string, use: string): string {
  return `Cannot express ${use}: the kernel lacks the match '${extension}' (module xt_${extension})`;
}
