/**
 * What the metrics port serves: the paths of kube-proxy's, and nothing that tells more of the cluster
 * than those do. Whoever reaches the port may ask.
 *
 * @module
 */

/** The metrics as text. */
export interface RenderedMetrics {
  readonly contentType: string;
  readonly body: string;
}

/** What is answered with. */
export interface MetricsHandlerOptions {
  /** Called for each request of `/metrics`. */
  readonly render: () => Promise<RenderedMetrics>;
  /** The word that `/proxyMode` answers with. */
  readonly mode: string;
}

/** Answers `/metrics`, `/proxyMode` and `/healthz` (of the port itself, not of the proxy). */
export function createMetricsHandler(
  { render, mode }: MetricsHandlerOptions,
): (request: Request) => Promise<Response> {
  return async (request) => {
    switch (new URL(request.url).pathname) {
      case "/metrics":
        return await answerMetrics(request, render);
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
  render: MetricsHandlerOptions["render"],
): Promise<Response> {
  if (request.method !== "GET" && request.method !== "HEAD") {
    return answerText("Only GET is answered\n", 405);
  }
  const { contentType, body } = await render();
  return new Response(body, { headers: { "content-type": contentType } });
}

function answerText(body: string, status = 200): Response {
  const headers = {
    "content-type": "text/plain; charset=utf-8",
    "x-content-type-options": "nosniff",
  };
  return new Response(body, { status, headers });
}
