/**
 * Whether Services are counted one by one.
 *
 * @module
 */
import type { Logger } from "../../log/logger.ts";
import { hasMetric } from "../../metrics/metric.ts";
import { SERVICE_METRICS } from "../../metrics/service_metrics.ts";
import type { BackendMode } from "../../proxy/backend.ts";
import { ServiceTrafficTable } from "../../proxy/service_traffic.ts";

/**
 * Where it is counted; `undefined` = nobody asked for it, or the mode can't, which is said once: a flag
 * that does nothing in silence would be taken for Services without traffic.
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
