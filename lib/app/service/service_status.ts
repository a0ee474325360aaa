import type { LoopStatus } from "../../engine/controller.ts";
import type { Clock } from "../../os/clock.ts";
import { type BackendMode, MODE_TRAITS } from "../../proxy/backend.ts";
import { describeEdgeSettings } from "../../proxy/edge_settings.ts";
import type { Quarantined } from "../../proxy/data_plane.ts";
import type { EndpointHealth, ServedAddress, ServiceInspection } from "../../proxy/service_mode.ts";
import type { TrafficFigures } from "../../proxy/service_traffic.ts";
import type { Endpoint } from "../../proxy/endpoint.ts";
import type { ServicePlan } from "../../proxy/service_plan.ts";
import { type ServicePortKey, servicePortText } from "../../proxy/service_port_name.ts";
import type { ServiceFamily } from "./services.ts";
import { TimeSlice } from "../../os/time_slice.ts";

/** An endpoint of a ServicePort. */
export interface StatusEndpoint {
  readonly address: string;
  readonly state: "ready" | "not ready" | "serving, terminating" | "terminating";
  readonly local: boolean;
  /** Of a Service whose endpoints are checked or ejected, as far as connections may use them. */
  readonly health?: Pick<EndpointHealth, "state" | "reason"> & {
    /** RFC 3339. */
    readonly since: string;
  };
}

/** One ServicePort. */
export interface StatusService {
  /** `namespace/name:port`. */
  readonly name: string;
  readonly protocol: string;
  readonly addresses: readonly ServedAddress[];
  readonly endpoints: readonly StatusEndpoint[];
  /** Why it has no endpoints, if its Service has some for other ports. */
  readonly otherPorts?: readonly string[];
  /** Settings by annotations that the mode applies. */
  readonly settings?: readonly string[];
  /** Open connections or flows. */
  readonly connections?: number;
  /** With `--service-counters`. */
  readonly traffic?: TrafficFigures;
  /** The reason why it, or one of its addresses, is in quarantine. */
  readonly quarantined?: string;
  /** The time of the next attempt for a ServicePort that the kernel refused, RFC 3339. */
  readonly retryAt?: string;
}

/** Numbers of ServicePorts. */
export interface ServiceCounts {
  readonly all: number;
  readonly unhealthy: number;
  readonly withoutEndpoints: number;
}

/** Unhealthy Services that a brief status names. */
const MOST_UNHEALTHY = 20;

/** One IP family of Services. */
export interface StatusFamily extends LoopStatus {
  readonly mode: BackendMode;
  readonly lastSync?: NonNullable<LoopStatus["lastSync"]> & {
    /** ServicePorts that were compared. */
    readonly services: number;
  };
  /** In a brief status, only the first unhealthy ones. */
  readonly services: readonly StatusService[];
  /** Numbers of ServicePorts; only in a brief status. */
  readonly counts?: ServiceCounts;
  readonly quarantined: readonly Quarantined[];
}

/** Collects the status of one family; `brief` only counts most Services. Yields to the event loop. */
export async function collectFamilyStatus(
  clock: Clock,
  { backend, loop, services: planned }: ServiceFamily,
  { brief }: { readonly brief: boolean },
): Promise<StatusFamily> {
  const wallNow = clock.wallNow();
  const plans = planned.plan.services;
  const slice = new TimeSlice(clock);
  // Only these have a health of their own; to inspect all is expensive in some modes.
  const checked = MODE_TRAITS[backend.mode].forwardsItself
    ? [...plans].flatMap(([key, { edge }]) => edge === undefined ? [] : [key])
    : [];
  const { services: inspected, summary } = await backend.inspect(brief ? checked : undefined);
  const { lastSync, quarantined } = loop;
  const byKey = new Map(inspected.map((service) => [service.key, service]));
  const reasons = reasonsByKey(quarantined);
  const retries = new Map(quarantined.map(({ key, retryAt }) => [key, retryAt]));
  const services: StatusService[] = [];
  const counts = { all: plans.size, unhealthy: 0, withoutEndpoints: 0 };
  for (const [key, plan] of plans) {
    await slice.pause();
    const [reason, retryAt, inspection] = [reasons.get(key), retries.get(key), byKey.get(key)];
    if (brief) {
      if (plan.endpoints.length === 0) counts.withoutEndpoints++;
      const isFine = inspection?.health === undefined && plan.endpoints.some(({ ready }) => ready);
      if (isFine || reason !== undefined) continue;
    }
    const service = serviceStatus(plan, { inspection, wallNow });
    if (brief && (severity(service) < 2 || ++counts.unhealthy > MOST_UNHEALTHY)) continue;
    const otherPorts = plan.endpoints.length === 0 ? planned.endpoints.otherPorts(key) : [];
    services.push({
      ...service,
      ...(otherPorts.length > 0 && { otherPorts }),
      ...settingsOf(plan, { mode: backend.mode, inspection }),
      ...(reason !== undefined && { quarantined: reason }),
      ...(retryAt !== undefined && { retryAt }),
    });
  }
  const { lastSync: last, ...status } = loop.status(summary);
  return {
    ...status,
    mode: backend.mode,
    ...(last && lastSync && { lastSync: { ...last, services: lastSync.report.services } }),
    services,
    ...(brief && { counts }),
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
  { mode, inspection }: {
    readonly mode: BackendMode;
    readonly inspection: ServiceInspection | undefined;
  },
): Pick<StatusService, "settings"> {
  if (edge === undefined || !MODE_TRAITS[mode].forwardsItself) return {};
  const { ignored } = inspection?.health ?? {};
  return { settings: [...describeEdgeSettings(edge), ...(ignored === undefined ? [] : [ignored])] };
}

function serviceStatus(
  plan: ServicePlan,
  { inspection, wallNow }: {
    readonly inspection: ServiceInspection | undefined;
    readonly wallNow: number;
  },
): StatusService {
  const health = new Map(inspection?.health?.endpoints.map((each) => [each.endpoint, each]));
  return {
    name: servicePortText(plan.name),
    protocol: plan.protocol,
    addresses: inspection?.addresses ?? [],
    endpoints: plan.endpoints.map((endpoint) => {
      const found = health.get(endpoint.key);
      return {
        address: endpoint.key,
        state: endpointState(endpoint),
        local: endpoint.isLocal,
        ...(found && { health: healthStatus(found, wallNow) }),
      };
    }),
    ...(inspection?.connections !== undefined && { connections: inspection.connections }),
    ...(inspection?.traffic && { traffic: inspection.traffic }),
  };
}

function healthStatus(
  { state, reason, forMs }: EndpointHealth,
  wallNow: number,
): NonNullable<StatusEndpoint["health"]> {
  const since = new Date(wallNow - forMs).toISOString();
  return { state, ...(reason !== undefined && { reason }), since };
}

function endpointState(
  { ready, serving, terminating }: Pick<Endpoint, "ready" | "serving" | "terminating">,
): StatusEndpoint["state"] {
  if (ready) return "ready";
  if (terminating) return serving ? "serving, terminating" : "terminating";
  return "not ready";
}

/** Whether new connections skip an endpoint. */
export function isSkipped({ health }: Pick<StatusEndpoint, "health">): boolean {
  return health?.state === "unhealthy" || health?.state === "ejected";
}

/** The number of ready endpoints. */
export function readyCount({ endpoints }: Pick<StatusService, "endpoints">): number {
  return endpoints.filter(({ state }) => state === "ready").length;
}

/** 0 = healthy, 1 = without endpoints, 2 = some of them unhealthy, 3 = all of them, 4 = in quarantine. */
export function severity(service: Pick<StatusService, "endpoints" | "quarantined">): number {
  if (service.quarantined !== undefined) return 4;
  if (service.endpoints.length === 0) return 1;
  const skipped = service.endpoints.filter(isSkipped).length;
  if (readyCount(service) <= skipped) return 3;
  return skipped > 0 ? 2 : 0;
}
