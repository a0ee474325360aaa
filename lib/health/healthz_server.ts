import { SERVER_NAME } from "../os/http_connection.ts";
import { answerJson, answerNotFound } from "../os/plain_answer.ts";
import type { ProxyHealth } from "./proxy_health.ts";

/** Go's zero time, which upstream prints before the first sync of any loop. */
const NEVER = "0001-01-01T00:00:00Z";

/**
 * Creates the handler of `/healthz` (for load balancers: also checks whether the node is eligible)
 * and `/livez` (for liveness probes: only checks the proxy), with kube-proxy's codes, headers and
 * bodies (KEP-3836), and `program`. Accepts any method, as upstream.
 */
export function createHealthzHandler(
  { health, now: timeNow, phase, onAnswer }: {
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
  },
): (request: Request) => Response {
  return (request) => {
    const path = new URL(request.url).pathname.slice(1);
    if (path !== "healthz" && path !== "livez") return answerNotFound();
    const now = timeNow();
    const healthy = health.healthy();
    const good = healthy && (path === "livez" || health.nodeEligible);
    const loops = [...health.loops()];
    const newest = Math.max(0, ...loops.map(([, { lastUpdated }]) => lastUpdated));
    const status = loops.map(([name, { lastUpdated, healthy }]) => [
      name,
      { lastUpdated: timeText(lastUpdated), healthy },
    ]);
    const currentPhase = phase();
    const body = {
      // A good answer reports the current time as the last update, because old consumers compare
      // both times (upstream).
      lastUpdated: timeText(good ? now : newest),
      currentTime: timeText(now),
      ...(path === "healthz" && { nodeEligible: health.nodeEligible }),
      healthy,
      ...(status.length > 0 && { status: Object.fromEntries(status) }),
      ...(currentPhase !== undefined && { phase: currentPhase }),
      // kube-proxy does not have it. `status --cluster` must tell them apart, and a gateway may replace
      // the header `Server`.
      program: SERVER_NAME,
    };
    onAnswer(path, good ? 200 : 503);
    return answerJson(body, "application/json", good ? 200 : 503);
  };
}

function timeText(ms: number): string {
  return ms === 0 ? NEVER : new Date(ms).toISOString();
}
