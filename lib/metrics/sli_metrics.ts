import { Counter, Gauge, Registry } from "./prom_client.ts";

/**
 * Counts health checks for `/metrics/slis` (KEP-3466), separately from other metrics, because it
 * may be scraped every second.
 */
export class SliMetrics {
  readonly #registry = new Registry();
  readonly #state = new Gauge({
    name: "kubernetes_healthcheck",
    help: "Result of the last health check: 1 passed, 0 failed",
    labelNames: ["name", "type"],
    registers: [this.#registry],
  });
  readonly #total = new Counter({
    name: "kubernetes_healthchecks_total",
    help: "Health checks, by result",
    labelNames: ["name", "type", "status"],
    registers: [this.#registry],
  });

  /** Counts from zero. `startedAt` is milliseconds since 1970. */
  constructor({ startedAt }: { readonly startedAt: number }) {
    const name = "process_start_time_seconds";
    const help = "Unix time at which the process started";
    new Gauge({ name, help, registers: [this.#registry] }).set(startedAt / 1000);
  }

  /** Counts a check; `type` is the path that it belongs to, e.g. `healthz`. */
  checked(
    check: { readonly name: string; readonly type: string },
    status: "success" | "error",
  ): void {
    this.#state.set({ ...check }, status === "success" ? 1 : 0);
    this.#total.inc({ ...check, status });
  }

  /** Resets the counters. */
  reset(): void {
    this.#state.reset();
    this.#total.reset();
  }

  async render(): Promise<{ readonly contentType: string; readonly body: string }> {
    return { contentType: this.#registry.contentType, body: await this.#registry.metrics() };
  }
}
