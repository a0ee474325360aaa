/**
 * The metrics of a process with what its configuration says about them.
 *
 * @module
 */
import { FEATURE_GATES, featureEnabled } from "../../config/feature_gates.ts";
import { createProxyMetrics, type ProxyMetrics } from "../../metrics/proxy_metrics.ts";
import type { Clock } from "../../os/clock.ts";
import type { ServiceTrafficTable } from "../../proxy/service_traffic.ts";
import type { RunConfiguration } from "./run_configuration.ts";
import { VERSION } from "../cli/version.ts";

/** How upstream spells the stages; GA is the empty string. */
const STAGES = { alpha: "ALPHA", beta: "BETA", GA: "" } as const;

/** Metrics for this configuration; `traffic` is there when Services are counted one by one. */
export function createConfiguredMetrics(
  { clock, traffic }: { readonly clock: Clock; readonly traffic: ServiceTrafficTable | undefined },
  { proxy, mode }: RunConfiguration,
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
    featureGates,
    ...(traffic && { traffic }),
  });
}
