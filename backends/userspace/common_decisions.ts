/**
 * Decisions that need a view over the connections of all threads, where several of them forward.
 *
 * @module
 */
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { hasLimits, type LimitTable } from "./connection_limits.ts";
import type { EndpointPickerOptions, Picker } from "./endpoint_picker.ts";

/** Asks the thread that decides. */
export interface CommonDecisions {
  readonly limits: LimitTable;
  createPicker(plan: ServicePlan, options: EndpointPickerOptions): Picker;
}

/**
 * Whether the choice of an endpoint depends on earlier or other connections of all threads. A
 * ServicePort for UDP is in one thread.
 */
export function picksInCommon({ affinityTimeoutSeconds, edge, protocol }: ServicePlan): boolean {
  if (protocol !== "TCP") return false;
  return affinityTimeoutSeconds !== undefined || edge?.balance === "least-connections" ||
    edge?.balance === "random-two-choices";
}

/** Whether some decision is common. */
export function decidesInCommon(plan: ServicePlan): boolean {
  return picksInCommon(plan) || hasLimits(plan.edge ?? {});
}
