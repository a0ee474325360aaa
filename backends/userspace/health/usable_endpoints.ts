import type { EdgeSettings } from "../../../lib/proxy/edge_settings.ts";
import type { Endpoint, EndpointKey } from "../../../lib/proxy/endpoint.ts";

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
  { healthThreshold = DEFAULT_THRESHOLD }: Pick<EdgeSettings, "healthThreshold"> = {},
): readonly Endpoint[] {
  if (unhealthy.size === 0) return endpoints;
  const healthy = endpoints.filter(({ key }) => !unhealthy.has(key));
  const isEnough = healthy.length > 0 &&
    100 * healthy.length >= healthThreshold * endpoints.length;
  return isEnough ? healthy : endpoints;
}
