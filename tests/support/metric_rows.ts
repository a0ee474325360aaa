import { type Metric, METRICS, SERVICE_METRICS } from "../../lib/metrics/metric_table.ts";

/** Every metric, including those of each Service, with all columns on each row. */
export const METRIC_ROWS: readonly Metric[] = [
  ...Object.values<Metric>(METRICS),
  ...Object.values(SERVICE_METRICS),
];

/** Returns the largest number of series that a metric can have. */
export function seriesBound({ labels = {}, buckets }: Metric): number {
  const combinations = Object.values(labels)
    .reduce((product, values) => product * values.length, 1);
  // A histogram has a series for each bucket and for +Inf, sum and count.
  return combinations * (buckets === undefined ? 1 : buckets.length + 3);
}
