import type { IpAddress } from "../../lib/net/ip_address.ts";
import type { Clock } from "../../lib/os/clock.ts";
import { TimeSlice } from "../../lib/os/time_slice.ts";
import type { Quarantined } from "../../lib/proxy/data_plane.ts";
import {
  contestedAddressesOf,
  frontendsOf,
  nodePortAddressesOf,
} from "../../lib/proxy/frontend.ts";
import type { ProxyPlan, SharedPlan } from "../../lib/proxy/proxy_plan.ts";
import type {
  BackendInspection,
  ServedAddress,
  ServiceInspection,
} from "../../lib/proxy/service_mode.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import type { TrafficFigures } from "../../lib/proxy/service_traffic.ts";

interface PlanInspectionContext {
  readonly clock: Clock;
  /** All quarantined ServicePorts. */
  readonly quarantined?: readonly Quarantined[] | undefined;
  /** Left out = all. */
  readonly keys?: readonly ServicePortKey[] | undefined;
  /** Returns the counted traffic of a ServicePort. */
  readonly trafficOf?: (service: ServicePlan) => TrafficFigures | undefined;
}

/** Inspects all ServicePorts, or the requested ones that exist. Empty before the first plan. */
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

interface InspectionContext {
  readonly shared: SharedPlan;
  readonly quarantined: readonly Quarantined[];
}

/** The addresses of a ServicePort and the verdicts of their packets. */
export function inspectService(
  plan: ServicePlan,
  { shared, quarantined }: InspectionContext,
): ServiceInspection {
  const { key, protocol } = plan;
  const own = quarantined.filter((item) => item.key === key);
  const isOut = own.some(({ address }) => address === undefined);
  const addressesOf = ({ address }: { readonly address?: IpAddress }) =>
    address === undefined ? nodePortAddressesOf(plan, shared.nodePortAddresses) : [address];
  const addresses: ServedAddress[] = [];
  for (const frontend of frontendsOf(plan)) {
    const { role, port, verdict: { external, internal } } = frontend;
    const isServed = external.kind === "forward" || internal.kind === "forward";
    const isQuarantined = isOut || (role !== "ClusterIP" && own.length > 0);
    const state = isQuarantined ? "quarantined" : isServed ? "serving" : "refusing";
    for (const address of addressesOf(frontend)) {
      addresses.push({ role, address, port, protocol, state });
    }
  }
  for (const place of contestedAddressesOf(plan, shared.nodePortAddresses)) {
    addresses.push({ ...place, protocol, state: "quarantined" });
  }
  return { key, addresses };
}
