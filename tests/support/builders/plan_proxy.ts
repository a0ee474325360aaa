/**
 * A plan from scratch, which every sequence of updates must reach.
 *
 * @module
 */
import {
  createProxyPlan,
  type PlanOptions,
  type ProxyPlan,
  type ProxyState,
} from "../../../lib/proxy/proxy_plan.ts";

import { updatePlan } from "./update_plan.ts";

/** The plan for a state. Every sequence of updates has to produce the same plan. */
export function planProxy(state: ProxyState, options: PlanOptions): ProxyPlan {
  const plan = createProxyPlan(options);
  updatePlan(plan, state, { keys: new Set(), shared: true, everything: true }, options);
  return plan;
}
