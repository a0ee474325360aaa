/**
 * Creates the metrics of a process from its configuration.
 *
 * @module
 */
import { FEATURE_GATES, featureEnabled } from "../../config/feature_gates.ts";
import type { Logger } from "../../log/logger.ts";
import { hasMetric, SERVICE_METRICS } from "../../metrics/metric_table.ts";
import { ProxyMetrics } from "../../metrics/proxy_metrics.ts";
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
  return new ProxyMetrics({
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
  const counter = SERVICE_METRICS["kube_relay_service_received_bytes_total"]!;
  if (hasMetric(mode, counter)) return new ServiceTrafficTable();
  logger.warn("--service-counters counts nothing in this mode", {
    mode,
    modes: counter.modes!.join(", "),
  });
  return undefined;
}
