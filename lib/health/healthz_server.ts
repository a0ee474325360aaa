/**
 * `/healthz` and `/livez`, with kube-proxy's codes, headers and bodies (KEP-3836).
 *
 * @module
 */
import type { ProxyHealth } from "./proxy_health.ts";

/** What an answer is made from. */
interface HealthzOptions {
  readonly health: ProxyHealth;
  /** Time of day, in milliseconds since 1970. */
  readonly now: () => number;
  /** What the process is doing while it starts or stops; `undefined` once it serves: then the body is upstream's. */
  readonly phase: () => string | undefined;
  /** Told of each answer, for the metrics. */
  readonly onAnswer: (path: "healthz" | "livez", code: 200 | 503) => void;
}

/** Go's zero time, which upstream prints when no loop has ever synced. */
const NEVER = "0001-01-01T00:00:00Z";

/**
 * Answers `/healthz` (for load balancers: also asks whether the node is eligible) and `/livez` (for
 * liveness probes: only whether the proxy keeps up). Any method, as upstream.
 */
export function createHealthzHandler(options: HealthzOptions): (request: Request) => Response {
  return (request) => {
    const { pathname } = new URL(request.url);
    if (pathname === "/healthz") return answer(options, "healthz");
    if (pathname === "/livez") return answer(options, "livez");
    const headers = {
      "content-type": "text/plain; charset=utf-8",
      "x-content-type-options": "nosniff",
    };
    return new Response("404 page not found\n", { status: 404, headers });
  };
}

function answer(options: HealthzOptions, path: "healthz" | "livez"): Response {
  const { health, phase, onAnswer } = options;
  const now = options.now();
  const healthy = health.healthy();
  const good = healthy && (path === "livez" || health.nodeEligible);
  const loops = [...health.loops()];
  const newest = Math.max(0, ...loops.map(([, { lastUpdated }]) => lastUpdated));
  // A good answer says "now" as the last update: old consumers compare the two times (upstream).
  const lastUpdated = good ? timeText(now) : timeText(newest);
  const status = loops.map(([name, { lastUpdated, healthy }]) => [
    name,
    { lastUpdated: timeText(lastUpdated), healthy },
  ]);
  const said = phase();
  const body = {
    lastUpdated,
    currentTime: timeText(now),
    ...(path === "healthz" && { nodeEligible: health.nodeEligible }),
    healthy,
    ...(status.length > 0 && { status: Object.fromEntries(status) }),
    ...(said !== undefined && { phase: said }),
  };
  const code = good ? 200 : 503;
  onAnswer(path, code);
  return new Response(JSON.stringify(body), {
    status: code,
    headers: { "content-type": "application/json", "x-content-type-options": "nosniff" },
  });
}

function timeText(ms: number): string {
  return ms === 0 ? NEVER : new Date(ms).toISOString();
}
