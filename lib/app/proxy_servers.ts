/**
 * The two HTTP servers of every kube-proxy: health and metrics. They listen from the first moment,
 * before anything is known.
 *
 * @module
 */
import { HEALTHZ_PORT, METRICS_PORT, tryParseListenAddress } from "../config/listen_address.ts";
import { createHealthzHandler } from "../health/healthz_server.ts";
import type { ProxyHealth } from "../health/proxy_health.ts";
import type { Logger } from "../log/logger.ts";
import { createMetricsHandler } from "../metrics/metrics_server.ts";
import type { ProxyMetrics } from "../metrics/proxy_metrics.ts";
import type { Clock } from "../os/clock.ts";
import { runHttpServer } from "../os/http_server.ts";
import type { RunConfiguration } from "./run_configuration.ts";
import type { TaskGroup } from "./task_group.ts";

/** What the servers answer from. */
export interface ProxyServersOptions {
  readonly configuration: RunConfiguration;
  readonly health: ProxyHealth;
  readonly metrics: ProxyMetrics;
  /** What the process is doing while it does not serve. */
  readonly phase: () => string | undefined;
  /** Brings the metrics up to date with what is only known when asked for. */
  readonly gather: () => void;
}

/** Starts both as tasks of the program. */
export function startProxyServers(
  dependencies: { readonly clock: Clock; readonly logger: Logger },
  tasks: TaskGroup,
  { configuration, health, metrics, phase, gather }: ProxyServersOptions,
): void {
  const { proxy, mode } = configuration;
  const healthz = createHealthzHandler({
    health,
    now: () => dependencies.clock.wallNow(),
    phase,
    onAnswer: (path, code) => metrics.healthAnswered(path, code),
  });
  const metricsHandler = createMetricsHandler({
    mode,
    render: () => {
      gather();
      return metrics.render();
    },
  });
  const servers = [
    { name: "healthz", text: proxy.healthzBindAddress, port: HEALTHZ_PORT, handler: healthz },
    {
      name: "metrics",
      text: proxy.metricsBindAddress,
      port: METRICS_PORT,
      handler: metricsHandler,
    },
  ];
  for (const { name, text, port, handler } of servers) {
    const address = tryParseListenAddress(text, port)!;
    const options = { name, address, handler, hardFail: proxy.bindAddressHardFail };
    tasks.run(name, (signal) => runHttpServer(dependencies, { ...options, signal }));
  }
}
