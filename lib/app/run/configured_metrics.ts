/**
 * Creates the metrics of a process from its configuration.
 *
 * @module
 */
import { FEATURE_GATES, featureEnabled } from "../../config/feature_gates.ts";
import type { Logger } from "../../log/logger.ts";
import { hasMetric } from "../../metrics/metric.ts";
import { createProxyMetrics, type ProxyMetrics } from "../../metrics/proxy_metrics.ts";
import { SERVICE_METRICS } from "../../metrics/service_metrics.ts";
import type { Clock } from "../../os/clock.ts";
import type { BackendMode } from "../../proxy/backend.ts";
import { ServiceTrafficTable } from "../../proxy/service_traffic.ts";
import { VERSION } from "../../config/version.ts";
import type { RunConfiguration } from "./run_configuration.ts";

/** kube-proxy's names of the stages; GA is the empty string. */
const STAGES = { alpha: "ALPHA", beta: "BETA", GA: "" } as const;

/** Creates the metrics of this configuration; `traffic` is present if each Service is counted. */
export function createConfiguredMetrics(
  { clock, traffic }: { readonly clock: Clock; readonly traffic: ServiceTrafficTable | undefined },
  { proxy, mode, families }: RunConfiguration,
): ProxyMetrics {
  const featureGates = FEATURE_GATES.map(({ name, stage }) => ({
    name,
    stage: STAGES[stage],
    enabled: featureEnabled(proxy, name),
  }));
  return createProxyMetrics({
    clock,
    version: VERSION,
    mode,
    families,
    featureGates,
    ...(traffic && { traffic }),
  });
}

/**
 * Creates the table of counters; `undefined` if the flag is off, or if the mode cannot count. The
 * latter is logged: a flag without effect would look like Services without traffic.
 */
export function createServiceTraffic(
  { logger }: { readonly logger: Logger },
  { mode, serviceCounters }: { readonly mode: BackendMode; readonly serviceCounters: boolean },
): ServiceTrafficTable | undefined {
  if (!serviceCounters) return undefined;
  const { bytesFromClients } = SERVICE_METRICS;
  if (hasMetric(mode, bytesFromClients)) return new ServiceTrafficTable();
  logger.warn("--service-counters counts nothing in this mode", {
    mode,
    modes: bytesFromClients.modes.join(", "),
  });
  return undefined;
}
