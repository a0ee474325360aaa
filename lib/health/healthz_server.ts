import type { ProxyHealth } from "./proxy_health.ts";

/** The content of a response. */
interface HealthzOptions {
  readonly health: ProxyHealth;
  /** Time of day, in milliseconds since 1970. */
  readonly now: () => number;
  /**
   * The current phase while the process starts or stops; `undefined` once it serves, and the body
   * is then upstream's.
   */
  readonly phase: () => string | undefined;
  /** Called for each response, for the metrics. */
  readonly onAnswer: (path: "healthz" | "livez", code: 200 | 503) => void;
}

/** Go's zero time, which upstream prints before the first sync of any loop. */
const NEVER = "0001-01-01T00:00:00Z";

/**
 * Creates the handler of `/healthz` (for load balancers: also checks whether the node is eligible)
 * and `/livez` (for liveness probes: only checks the proxy), with kube-proxy's codes, headers and
 * bodies (KEP-3836). Accepts any method, as upstream.
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
  // A good answer reports the current time as the last update, because old consumers compare both
  // times (upstream).
  const lastUpdated = good ? timeText(now) : timeText(newest);
  const status = loops.map(([name, { lastUpdated, healthy }]) => [
    name,
    { lastUpdated: timeText(lastUpdated), healthy },
  ]);
  const currentPhase = phase();
  const body = {
    lastUpdated,
    currentTime: timeText(now),
    ...(path === "healthz" && { nodeEligible: health.nodeEligible }),
    healthy,
    ...(status.length > 0 && { status: Object.fromEntries(status) }),
    ...(currentPhase !== undefined && { phase: currentPhase }),
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
