import type { Clock } from "../../os/clock.ts";
import type { Backend } from "../../proxy/backend.ts";
import type { Quarantined } from "../../proxy/data_plane.ts";
import type { ServiceInspection } from "../../proxy/service_mode.ts";
import type { Endpoint } from "../../proxy/endpoint.ts";
import type { ServicePlan } from "../../proxy/service_plan.ts";
import { type ServicePortKey, servicePortText } from "../../proxy/service_port_name.ts";
import type { FamilyProxy } from "../service/family_proxy.ts";
import { TimeSlice } from "../../os/time_slice.ts";
import type { StatusEndpoint, StatusFamily, StatusService } from "./status_report.ts";

/** The status of one family. Yields, so that 10,000 Services hold nobody up; `brief` leaves them out. */
export async function collectFamilyStatus(
  { clock }: { readonly clock: Clock },
  family: FamilyProxy,
  { brief }: { readonly brief: boolean },
): Promise<StatusFamily> {
  const { backend, syncer, pipeline } = family;
  const { services: inspected, summary } = await backend.inspect(brief ? [] : undefined);
  const byKey = new Map(inspected.map((service) => [service.key, service]));
  const reasons = reasonsByKey(syncer.quarantined);
  const retries = new Map(syncer.quarantined.map(({ key, retryAt }) => [key, retryAt]));
  const services: StatusService[] = [];
  const slice = new TimeSlice(clock);
  for (const [key, plan] of brief ? [] : pipeline.plan.services) {
    const quarantine = { reason: reasons.get(key), retryAt: retries.get(key) };
    services.push(serviceStatus(plan, { inspection: byKey.get(key), ...quarantine }));
    await slice.pause();
  }
  return {
    ...familyFacts(family, backend),
    summary,
    services,
    quarantined: syncer.quarantined,
  };
}

/** Why ServicePorts are in quarantine: one may lack several addresses, each for a reason of its own. */
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

function familyFacts(
  { family, syncer, pipeline }: FamilyProxy,
  { mode }: Backend,
): Omit<StatusFamily, "summary" | "services" | "quarantined"> {
  const { lastSync, failure } = syncer;
  return {
    family,
    mode,
    ...(lastSync && {
      lastSync: {
        at: new Date(lastSync.at).toISOString(),
        durationMs: Math.round(lastSync.durationMs * 10) / 10,
        full: lastSync.report.full,
        services: lastSync.report.services,
        operations: lastSync.report.operations,
      },
    }),
    pending: pipeline.pending,
    failures: failure.count,
    ...(failure.error !== undefined && { lastError: failure.error }),
  };
}

function serviceStatus(
  plan: ServicePlan,
  { inspection, reason, retryAt }: {
    readonly inspection: ServiceInspection | undefined;
    readonly reason: string | undefined;
    readonly retryAt: string | undefined;
  },
): StatusService {
  return {
    name: servicePortText(plan.name),
    protocol: plan.protocol,
    addresses: inspection?.addresses ?? [],
    endpoints: plan.endpoints.map(endpointStatus),
    ...(inspection?.connections !== undefined && { connections: inspection.connections }),
    ...(inspection?.traffic && { traffic: inspection.traffic }),
    ...(reason !== undefined && { quarantined: reason }),
    ...(retryAt !== undefined && { retryAt }),
  };
}

function endpointStatus({ key, isLocal, ready, serving, terminating }: Endpoint): StatusEndpoint {
  return { address: key, state: endpointState({ ready, serving, terminating }), local: isLocal };
}

function endpointState(
  { ready, serving, terminating }: Pick<Endpoint, "ready" | "serving" | "terminating">,
): StatusEndpoint["state"] {
  if (ready) return "ready";
  if (terminating) return serving ? "serving, terminating" : "terminating";
  return "not ready";
}
