/**
 * The table of metrics, the source of the instruments and of docs/metrics.md.
 *
 * Names, types, labels, buckets and modes of `kubeproxy_` metrics are kube-proxy's, so that its
 * dashboards and alerts keep working; kube-relay's own begin with `kube_relay_`. Each label has a
 * bounded set of values: the number of series does not grow with the cluster, except for the sessions of
 * a BGP mesh.
 *
 * @module
 */
import { KUBE_PROXY_METRICS } from "./kube_proxy_metrics.ts";
import { RELAY_METRICS } from "./relay_metrics.ts";
import { ROUTING_METRICS } from "./routing_metrics.ts";
import { SHARED_METRICS } from "./shared_metrics.ts";

/** Every metric that prom-client keeps, by its name in the code. */
export const METRICS = {
  ...KUBE_PROXY_METRICS,
  ...SHARED_METRICS,
  ...RELAY_METRICS,
  ...ROUTING_METRICS,
} as const;

/** The name of a metric in the code. */
export type MetricKey = keyof typeof METRICS;
