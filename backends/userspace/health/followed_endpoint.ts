import type { Endpoint, EndpointKey } from "../../../lib/proxy/endpoint.ts";
import type { EndpointHealth } from "../../../lib/proxy/service_mode.ts";
import type { ServicePlan } from "../../../lib/proxy/service_plan.ts";
import type { ServiceTraffic } from "../../../lib/proxy/service_traffic.ts";
import type { Ejection } from "./ejection.ts";
import type { HealthCheck } from "./health_check.ts";

/** A ServicePort that has settings for health. */
export interface FollowedPort {
  plan: ServicePlan;
  readonly endpoints: Map<EndpointKey, FollowedEndpoint>;
  readonly traffic: ServiceTraffic | undefined;
}

/** One of its endpoints. */
export interface FollowedEndpoint {
  readonly port: FollowedPort;
  endpoint: Endpoint;
  check: HealthCheck<FollowedEndpoint> | undefined;
  ejection: Ejection<FollowedEndpoint> | undefined;
  state: EndpointHealth["state"];
  /** The start of the state, by the monotonic clock. */
  since: number;
}

/** Whether new connections skip an endpoint, unless too few others remain. */
export function isSkipped({ state }: FollowedEndpoint): boolean {
  return state === "unhealthy" || state === "ejected";
}

/** The endpoints that new connections skip. */
export function unhealthyOf({ endpoints }: FollowedPort): ReadonlySet<EndpointKey> {
  return new Set(
    endpoints.values().filter(isSkipped).map(({ endpoint }) => endpoint.key),
  );
}

/** Why connections do not use an endpoint, or why it is not checked. */
export function reasonOf({ ejection, check }: FollowedEndpoint): { readonly reason?: string } {
  const reason = ejection?.reason ?? check?.reason;
  return reason === undefined ? {} : { reason };
}
