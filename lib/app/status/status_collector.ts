import type { Clock } from "../../os/clock.ts";
import { type BackendMode, MODE_TRAITS } from "../../proxy/backend.ts";
import { describeEdgeSettings } from "../../proxy/edge_settings.ts";
import type { Quarantined } from "../../proxy/data_plane.ts";
import type { ServiceInspection } from "../../proxy/service_mode.ts";
import type { Endpoint } from "../../proxy/endpoint.ts";
import type { ServicePlan } from "../../proxy/service_plan.ts";
import { type ServicePortKey, servicePortText } from "../../proxy/service_port_name.ts";
import type { FamilyProxy } from "../service/family_proxy.ts";
import { TimeSlice } from "../../os/time_slice.ts";
import type { StatusEndpoint, StatusFamily, StatusService } from "./status_report.ts";

/** Collects the status of one family; `brief` omits the Services. Yields to the event loop. */
export async function collectFamilyStatus(
  { clock }: { readonly clock: Clock },
  { backend, loop, pipeline }: FamilyProxy,
  { brief }: { readonly brief: boolean },
): Promise<StatusFamily> {
  const { services: inspected, summary } = await backend.inspect(brief ? [] : undefined);
  const { lastSync, quarantined } = loop;
  const byKey = new Map(inspected.map((service) => [service.key, service]));
  const reasons = reasonsByKey(quarantined);
  const retries = new Map(quarantined.map(({ key, retryAt }) => [key, retryAt]));
  const services: StatusService[] = [];
  const slice = new TimeSlice(clock);
  for (const [key, plan] of brief ? [] : pipeline.plan.services) {
    const [reason, retryAt] = [reasons.get(key), retries.get(key)];
    services.push({
      ...serviceStatus(plan, byKey.get(key)),
      ...settingsOf(plan, backend.mode),
      ...(reason !== undefined && { quarantined: reason }),
      ...(retryAt !== undefined && { retryAt }),
    });
    await slice.pause();
  }
  const { lastSync: last, ...status } = loop.status(summary);
  return {
    ...status,
    mode: backend.mode,
    ...(last && lastSync && { lastSync: { ...last, services: lastSync.report.services } }),
    services,
    quarantined,
  };
}

/** Joins the reasons of each ServicePort in quarantine: each of its addresses may have one. */
export function reasonsByKey(
  quarantined: readonly Quarantined[],
): ReadonlyMap<ServicePortKey, string> {
  const reasons = new Map<ServicePortKey, string>();
  for (const { key, address, reason } of quarantined) {
    const text = address === undefined ? reason : `${address}: ${reason}`;
    const before = reasons.get(key);
    reasons.set(key, before === undefined ? text : `${before}; ${text}`);
  }
  return reasons;
}

function settingsOf(
  { edge }: ServicePlan,
  mode: BackendMode,
): Pick<StatusService, "settings"> {
  return edge && MODE_TRAITS[mode].forwardsItself ? { settings: describeEdgeSettings(edge) } : {};
}

function serviceStatus(
  plan: ServicePlan,
  inspection: ServiceInspection | undefined,
): StatusService {
  return {
    name: servicePortText(plan.name),
    protocol: plan.protocol,
    addresses: inspection?.addresses ?? [],
    endpoints: plan.endpoints.map((endpoint) => ({
      address: endpoint.key,
      state: endpointState(endpoint),
      local: endpoint.isLocal,
    })),
    ...(inspection?.connections !== undefined && { connections: inspection.connections }),
    ...(inspection?.traffic && { traffic: inspection.traffic }),
  };
}

function endpointState(
  { ready, serving, terminating }: Pick<Endpoint, "ready" | "serving" | "terminating">,
): StatusEndpoint["state"] {
  if (ready) return "ready";
  if (terminating) return serving ? "serving, terminating" : "terminating";
  return "not ready";
}
