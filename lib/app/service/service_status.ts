import type { LoopStatus, StatusSource } from "../../engine/controller.ts";
import { countText } from "../../log/count_text.ts";
import type { Logger } from "../../log/logger.ts";
import type { IpFamily } from "../../net/ip_address.ts";
import type { Clock } from "../../os/clock.ts";
import { TimeSlice } from "../../os/time_slice.ts";
import { type BackendMode, MODE_TRAITS } from "../../proxy/backend.ts";
import type { Quarantined } from "../../proxy/data_plane.ts";
import { describeEdgeSettings } from "../../proxy/edge_settings.ts";
import type { PlanChanges, ProxyPlan } from "../../proxy/proxy_plan.ts";
import type { EndpointHealth, ServedAddress, ServiceInspection } from "../../proxy/service_mode.ts";
import type { ServicePlan } from "../../proxy/service_plan.ts";
import { type ServicePortKey, servicePortText } from "../../proxy/service_port_name.ts";
import type { TrafficFigures } from "../../proxy/service_traffic.ts";
import type { ServiceFamily } from "./services.ts";

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
  const { forwardsItself } = MODE_TRAITS[backend.mode];
  // Only these have a health of their own; to inspect all is expensive in some modes.
  const checked = forwardsItself
    ? [...plans].flatMap(([key, { edge }]) => edge === undefined ? [] : [key])
    : [];
  const { services: inspected, summary } = await backend.inspect(brief ? checked : undefined);
  const { lastSync, quarantined } = loop;
  const byKey = new Map(inspected.map((service) => [service.key, service]));
  const inQuarantine = Map.groupBy(quarantined, ({ key }) => key);
  const services: StatusService[] = [];
  const counts = { all: plans.size, unhealthy: 0, withoutEndpoints: 0 };
  for (const [key, plan] of plans) {
    await slice.pause();
    const inspection = byKey.get(key);
    const { health } = inspection ?? {};
    const refusals = inQuarantine.get(key);
    const { edge, endpoints } = plan;
    if (brief) {
      if (endpoints.length === 0) counts.withoutEndpoints++;
      const isFine = health === undefined && endpoints.some(({ ready }) => ready);
      if (isFine || refusals !== undefined) continue;
    }
    const service = serviceStatus(plan, inspection, wallNow);
    if (brief && (severity(service) < 2 || ++counts.unhealthy > MOST_UNHEALTHY)) continue;
    const otherPorts = endpoints.length === 0 ? planned.endpoints.otherPorts(key) : [];
    // Each of its addresses may have a reason.
    const reasons = refusals?.map(({ address, reason }) =>
      address === undefined ? reason : `${address}: ${reason}`
    );
    const retryAt = refusals?.at(-1)?.retryAt;
    services.push({
      ...service,
      ...(otherPorts.length > 0 && { otherPorts }),
      ...(edge && forwardsItself && {
        settings: [
          ...describeEdgeSettings(edge),
          ...planned.unusedItems(plan).map(({ name, items }) =>
            `annotation ${name} names endpoints that the Service does not have: ${items}`
          ),
          ...(health?.ignored ? [health.ignored] : []),
        ],
      }),
      ...(reasons && { quarantined: reasons.join("; ") }),
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

function serviceStatus(
  plan: ServicePlan,
  inspection: ServiceInspection | undefined,
  wallNow: number,
): StatusService {
  const health = new Map(inspection?.health?.endpoints.map((each) => [each.endpoint, each]));
  return {
    name: servicePortText(plan.name),
    protocol: plan.protocol,
    addresses: inspection?.addresses ?? [],
    endpoints: plan.endpoints.map(({ key, ready, serving, terminating, isLocal: local }) => {
      const { state, reason, forMs = 0 } = health.get(key) ?? {};
      const since = new Date(wallNow - forMs).toISOString();
      return {
        address: key,
        state: ready
          ? "ready"
          : !terminating
          ? "not ready"
          : serving
          ? "serving, terminating"
          : "terminating",
        local,
        ...(state && { health: { state, ...(reason !== undefined && { reason }), since } }),
      };
    }),
    ...(inspection?.connections !== undefined && { connections: inspection.connections }),
    ...(inspection?.traffic && { traffic: inspection.traffic }),
  };
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

/** The remedy if no address of the node serves node ports. */
export const NODE_PORT_CURE =
  "name the addresses with --nodeport-addresses, or the node's own one with --bind-address";

/** Reports node ports that no address of the node serves. */
export class NodePortReport {
  readonly #logger: Logger;
  readonly #withNodePort = new Map<IpFamily, Set<ServicePortKey>>();
  readonly #problems = new Map<IpFamily, string>();

  constructor({ logger }: { readonly logger: Logger }) {
    this.#logger = logger;
  }

  synced(family: IpFamily, plan: ProxyPlan, { removed, upserted }: PlanChanges): void {
    const keys = this.#withNodePort.getOrInsertComputed(family, () => new Set());
    for (const key of removed.keys()) keys.delete(key);
    for (const key of upserted) {
      if (plan.services.get(key)?.nodePort === undefined) keys.delete(key);
      else keys.add(key);
    }
    const problem = keys.size === 0 ? undefined : problemOf(plan);
    if (problem === this.#problems.get(family)) return;
    if (problem === undefined) {
      this.#problems.delete(family);
      this.#logger.info("Node ports are served again", { ipFamily: family });
      return;
    }
    this.#problems.set(family, problem);
    this.#logger.warn("No address of this node serves node ports", {
      ...{ ipFamily: family, reason: problem, cure: NODE_PORT_CURE },
    });
  }

  /** A line of `status`, which `doctor` reports too, if there is a problem. */
  status(): readonly StatusSource[] {
    if (this.#problems.size === 0) return [];
    const problems = [...this.#problems].map(([family, reason]) => {
      const count = countText(this.#withNodePort.get(family)?.size ?? 0, "node port");
      return `${count} of ${family} on no address: ${reason}; ${NODE_PORT_CURE}`;
    });
    return [{ name: "Node ports", state: "served on no address", problems }];
  }
}

function problemOf({ shared: { nodePortAddresses, nodePortRanges } }: ProxyPlan) {
  if (nodePortAddresses.length > 0 || nodePortRanges.kind === "all") return undefined;
  const ranges = nodePortRanges.cidrs.join(", ");
  return ranges === ""
    ? "the primary address of the node is not known: it has no default route, and no Node names one"
    : `the node has no address in ${ranges}`;
}
