/**
 * Decisions that need a view over the connections of all threads, where several of them forward.
 *
 * @module
 */
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { hasLimits, type ReachedLimit } from "./connection_limits.ts";
import type { EndpointPickerOptions, Picker } from "./endpoint_picker.ts";

/** Asks the thread that decides. */
export interface CommonDecisions {
  createPicker(plan: ServicePlan, options: EndpointPickerOptions): Picker;
  limitsOf(plan: ServicePlan): CommonLimits;
}

/** The limits of one ServicePort, which another thread keeps. */
export interface CommonLimits {
  /** As `ConnectionLimits.admit()`. Never rejects. */
  admit(client: string, at: unknown): Promise<ReachedLimit | undefined>;
  /** Counts a connection from before the limits. Returns the text to {@linkcode leave} with. */
  enter(): string;
  leave(client: string): void;
}

/** Whether the choice of an endpoint depends on earlier or other connections of all threads. */
export function picksInCommon({ affinityTimeoutSeconds, edge }: ServicePlan): boolean {
  return affinityTimeoutSeconds !== undefined || edge?.balance === "least-connections" ||
    edge?.balance === "random-two-choices";
}

/** Whether some decision about TCP connections is common. */
export function decidesInCommon(plan: ServicePlan): boolean {
  return plan.protocol === "TCP" && (picksInCommon(plan) || hasLimits(plan.edge ?? {}));
}
