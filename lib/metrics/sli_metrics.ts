import { Counter, Gauge, Registry } from "./prom_client.ts";

/** The result of a check. */
type CheckStatus = "success" | "error";

/** The text of a scrape. */
interface RenderedMetrics {
  readonly contentType: string;
  readonly body: string;
}

/**
 * Counts health checks for `/metrics/slis` (KEP-3466), separately from other metrics, because it
 * may be scraped every second.
 */
export interface SliMetrics {
  /** Counts a check; `type` is the path that it belongs to, e.g. `healthz`. */
  checked(check: { readonly name: string; readonly type: string }, status: CheckStatus): void;
  /** Resets the counters. */
  reset(): void;
  render(): Promise<RenderedMetrics>;
}

/** Counts from zero. `startedAt` is milliseconds since 1970. */
export function createSliMetrics({ startedAt }: { readonly startedAt: number }): SliMetrics {
  const registry = new Registry();
  const registers = [registry];
  const state = new Gauge({
    name: "kubernetes_healthcheck",
    help: "Result of the last health check: 1 passed, 0 failed",
    labelNames: ["name", "type"],
    registers,
  });
  const total = new Counter({
    name: "kubernetes_healthchecks_total",
    help: "Health checks, by result",
    labelNames: ["name", "type", "status"],
    registers,
  });
  new Gauge({
    name: "process_start_time_seconds",
    help: "Unix time at which the process started",
    registers,
  }).set(startedAt / 1000);
  return {
    checked(check, status) {
      state.set({ ...check }, status === "success" ? 1 : 0);
      total.inc({ ...check, status });
    },
    reset() {
      state.reset();
      total.reset();
    },
    render: async () => ({
      contentType: registry.contentType,
      body: await registry.metrics(),
    }),
  };
}
