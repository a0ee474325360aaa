/**
 * What was decided for a ServicePort, in words. Pure.
 *
 * @module
 */
import type { ServicePlan } from "../../proxy/service_plan.ts";
import { assertNever, type Verdict } from "../../proxy/verdict.ts";
import type { DumpInput } from "./dump_schema.ts";

/** One decision of a dump. */
type DumpDecision = DumpInput["families"] extends Iterable<
  { readonly decisions: Iterable<infer Decision> }
> ? Decision
  : never;

/** Most endpoints of a verdict that are named; the slices have all of them. */
const MOST_NAMED = 16;

const MASQUERADE_INTERNAL: Readonly<Record<ServicePlan["masqueradeInternal"], string>> = {
  "all": "all traffic",
  "off-cluster": "traffic from outside of the cluster",
  "none": "nothing",
};

const MASQUERADE_EXTERNAL: Readonly<Record<ServicePlan["masqueradeExternal"], string>> = {
  "all": "all traffic",
  "from-node": "traffic of the node itself",
};

/** The decision for a ServicePort; `reason`: why it, or an address of it, is in quarantine. */
export function dumpDecision(plan: ServicePlan, reason: string | undefined): DumpDecision {
  return {
    servicePort: plan.key,
    internal: verdictText(plan.internal),
    external: verdictText(plan.external),
    externalFromCluster: verdictText(plan.externalFromCluster),
    masqueradeInternal: MASQUERADE_INTERNAL[plan.masqueradeInternal],
    masqueradeExternal: MASQUERADE_EXTERNAL[plan.masqueradeExternal],
    ...(reason !== undefined && { quarantined: reason }),
  };
}

function verdictText(verdict: Verdict): string {
  switch (verdict.kind) {
    case "forward": {
      const { endpoints } = verdict;
      const named = endpoints.slice(0, MOST_NAMED).map(({ key }) => key).join(" ");
      const more = endpoints.length - MOST_NAMED;
      return `forward to ${named}${more > 0 ? ` and ${more} more` : ""}`;
    }
    case "reject":
      return "refuse";
    case "drop":
      return "drop: no endpoint on this node, as the traffic policy asks for";
    default:
      return assertNever(verdict);
  }
}
