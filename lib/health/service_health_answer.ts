/**
 * What a load balancer is told that asks a Service's health check node port (KEP-3836; the weight
 * header is kubernetes/kubernetes#118999's).
 *
 * @module
 */
import type { NamespacedName } from "../proxy/service_port_name.ts";

/** What an answer is made from. */
interface ServiceHealth {
  readonly service: NamespacedName;
  /** Ready endpoints on this node. */
  readonly localEndpoints: number;
  /** Whether both families' proxies keep up. */
  readonly proxyHealthy: boolean;
}

/**
 * The answer: 200 if this node can serve the Service, else 503. The body is indented by tabs and has
 * no line end, as upstream's. `undefined` is a Service that has just gone: 200 without a body.
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
