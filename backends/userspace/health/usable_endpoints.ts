import type { EdgeSettings } from "../../../lib/proxy/edge_settings.ts";
import type { Endpoint, EndpointKey } from "../../../lib/proxy/endpoint.ts";

type Threshold = Pick<EdgeSettings, "healthThreshold">;

/**
 * Below this percentage of healthy endpoints the remaining ones would soon fail of the load, if they do
 * not fail for the same reason. Two of three, and four of five, may fail.
 */
const DEFAULT_THRESHOLD = 20;

/**
 * The endpoints of a verdict that new connections may use: the healthy ones, or all if too few are
 * healthy.
 */
export function usableEndpoints(
  endpoints: readonly Endpoint[],
  unhealthy: ReadonlySet<EndpointKey>,
  { healthThreshold = DEFAULT_THRESHOLD }: Threshold = {},
): readonly Endpoint[] {
  if (unhealthy.size === 0) return endpoints;
  const healthy = endpoints.filter(({ key }) => !unhealthy.has(key));
  const isEnough = healthy.length > 0 &&
    100 * healthy.length >= healthThreshold * endpoints.length;
  return isEnough ? healthy : endpoints;
}

/** Why all endpoints of a verdict are used, although some are unhealthy; `undefined` = they are not. */
export function ignoredHealth(
  endpoints: readonly Endpoint[],
  unhealthy: ReadonlySet<EndpointKey>,
  { healthThreshold = DEFAULT_THRESHOLD }: Threshold = {},
): string | undefined {
  const { length } = endpoints;
  const healthy = endpoints.filter(({ key }) => !unhealthy.has(key)).length;
  const usable = usableEndpoints(endpoints, unhealthy, { healthThreshold });
  if (healthy === length || usable !== endpoints) return undefined;
  const least = healthy === 0 ? "" : `, less than ${healthThreshold}%`;
  return `health is ignored: ${healthy} of ${length} endpoints are healthy${least}`;
}
