/**
 * The one table of metrics. Their instruments and docs/metrics.md are made from it.
 *
 * Names, types, labels, buckets and modes of the `kubeproxy_` ones are kube-proxy's, so that its
 * dashboards and alerts go on working; what is ours begins with `kube_relay_`. Each label has a bounded
 * set of values: the number of series does not grow with the cluster.
 *
 * @module
 */
import { KUBE_PROXY_METRICS } from "./kube_proxy_metrics.ts";
import type { Metric } from "./metric.ts";
import { RELAY_METRICS } from "./relay_metrics.ts";
import { SERVICE_METRICS } from "./service_metrics.ts";
import { SHARED_METRICS } from "./shared_metrics.ts";

/** Every metric that prom-client keeps, by the name that the code has for it. */
export const METRICS = { ...KUBE_PROXY_METRICS, ...SHARED_METRICS, ...RELAY_METRICS } as const;

/** The name that the code has for a metric. */
export type MetricKey = keyof typeof METRICS;

/** The table, those of each Service included, with every column on each row. */
export const METRIC_ROWS: readonly Metric[] = [
  ...Object.values<Metric>(METRICS),
  ...Object.values<Metric>(SERVICE_METRICS),
];
