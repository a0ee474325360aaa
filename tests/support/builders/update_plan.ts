import {
  type MutableProxyPlan,
  type PlanChanges,
  type PlanOptions,
  updateSlices,
} from "../../../lib/proxy/proxy_plan.ts";
import type { DirtyState, ProxyState } from "../../../lib/proxy/proxy_state.ts";

/** As `updatePlanInSlices()`, without pauses. */
export function updatePlan(
  plan: MutableProxyPlan,
  state: ProxyState,
  dirty: DirtyState,
  options: PlanOptions,
): PlanChanges {
  const slices = updateSlices(plan, state, { dirty, options });
  for (;;) {
    const slice = slices.next();
    if (slice.done) return slice.value;
  }
}
