import type { NamespacedName } from "../proxy/service_port_name.ts";

/** The content of a response. */
interface ServiceHealth {
  readonly service: NamespacedName;
  /** Ready endpoints on this node. */
  readonly localEndpoints: number;
  /** Whether the proxies of both families are healthy. */
  readonly proxyHealthy: boolean;
}

/**
 * Returns the response of a health check node port (KEP-3836; the weight header is from
 * kubernetes/kubernetes#118999): 200 if this node can serve the Service, else 503. The body is
 * indented by tabs and has no line end, as upstream's. `undefined` is a Service that was just
 * deleted: 200 without a body.
 */
export function answerServiceHealth(health: ServiceHealth | undefined): Response {
  if (health === undefined) return new Response(null);
  const { service: { namespace, name }, localEndpoints, proxyHealthy } = health;
  const body = {
    service: { namespace, name },
    localEndpoints,
    serviceProxyHealthy: proxyHealthy,
  };
  return new Response(JSON.stringify(body, null, "\t"), {
    status: localEndpoints > 0 && proxyHealthy ? 200 : 503,
    headers: {
      "content-type": "application/json",
      "x-content-type-options": "nosniff",
      "x-load-balancing-endpoint-weight": String(localEndpoints),
    },
  });
}
