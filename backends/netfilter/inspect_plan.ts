/**
 * What the rules of a netfilter mode do for the ServicePorts of a plan, for `status`.
 *
 * @module
 */
import type { Clock } from "../../lib/os/clock.ts";
import type { Quarantined } from "../../lib/proxy/data_plane.ts";
import type { BackendInspection, ServiceInspection } from "../../lib/proxy/service_mode.ts";
import type { ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import type { TrafficFigures } from "../../lib/proxy/service_traffic.ts";
import { inspectService } from "./inspect_service.ts";
import { TimeSlice } from "../../lib/os/time_slice.ts";

/** What is known beside the plan, and what is asked for. */
interface PlanInspectionContext {
  readonly clock: Clock;
  /** Of all ServicePorts. */
  readonly quarantined?: readonly Quarantined[] | undefined;
  /** Left out = all. */
  readonly keys?: readonly ServicePortKey[] | undefined;
  /** What was counted for a ServicePort. */
  readonly trafficOf?: (service: ServicePlan) => TrafficFigures | undefined;
}

/** Nothing before the first plan. Of all ServicePorts, or of those asked for that there are. */
export async function inspectPlan(
  plan: ProxyPlan | undefined,
  { clock, quarantined: all = [], keys, trafficOf }: PlanInspectionContext,
): Promise<Omit<BackendInspection, "summary">> {
  if (plan === undefined) return { services: [], quarantined: [] };
  const quarantined = keys ? all.filter(({ key }) => keys.includes(key)) : all;
  const services: ServiceInspection[] = [];
  const slice = new TimeSlice(clock);
  for (const key of keys ?? plan.services.keys()) {
    await slice.pause();
    const service = plan.services.get(key);
    if (service === undefined) continue;
    const traffic = trafficOf?.(service);
    const inspection = inspectService(service, { shared: plan.shared, quarantined });
    services.push({ ...inspection, ...(traffic && { traffic }) });
  }
  return { services, quarantined };
}
