import type { Quarantined } from "../../lib/proxy/data_plane.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import type { IpvsLayout } from "./layout.ts";

/** Leaves it out. Where it is only the scheduler that cannot be had, the node's own serves. */
export function leaveOutRefused(layout: IpvsLayout, plan: ServicePlan, item: Quarantined): void {
  const { annotations, ...plain } = plan;
  const asksForMore = annotations !== undefined && item.reason.includes("Scheduler");
  layout.quarantine(item, asksForMore ? plain : undefined);
}
