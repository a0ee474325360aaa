/**
 * What the metrics port serves: the paths of kube-proxy's, and nothing that tells more of the cluster
 * than those do. Whoever reaches the port may ask.
 *
 * @module
 */
import type { ProxyMetrics } from "./proxy_metrics.ts";

/** What is answered with. */
export interface MetricsHandlerOptions {
  readonly metrics: Pick<ProxyMetrics, "render">;
  /** The word that `/proxyMode` answers with. */
  readonly mode: string;
}

/** Answers `/metrics`, `/proxyMode` and `/healthz` (of the port itself, not of the proxy). */
export function createMetricsHandler(
  { metrics, mode }: MetricsHandlerOptions,
): (request: Request) => Promise<Response> {
  return async (request) => {
    switch (new URL(request.url).pathname) {
      case "/metrics":
        return await answerMetrics(request, metrics);
      case "/proxyMode":
        return answerText(mode);
      case "/healthz":
      case "/healthz/ping":
        return answerText("ok");
      default:
        return answerText("404 page not found\n", 404);
    }
  };
}

async function answerMetrics(
  request: Request,
  metrics: Pick<ProxyMetrics, "render">,
): Promise<Response> {
  if (request.method !== "GET" && request.method !== "HEAD") {
    return answerText("Only GET is answered\n", 405);
  }
  const { contentType, body } = await metrics.render();
  return new Response(body, { headers: { "content-type": contentType } });
}

function answerText(body: string, status = 200): Response {
  const headers = {
    "content-type": "text/plain; charset=utf-8",
    "x-content-type-options": "nosniff",
  };
  return new Response(body, { status, headers });
}
