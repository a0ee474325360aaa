import type { BackendMode } from "../proxy/backend.ts";
import type { IpFamily } from "../net/ip_address.ts";
import { hasMetric, type Metric } from "./metric.ts";
import { type MetricKey, METRICS } from "./metric_table.ts";
import { Counter, Gauge, Histogram, type Registry } from "./prom_client.ts";

type InstrumentOf<Row extends Metric> = Row["type"] extends "counter" ? Counter
  : Row["type"] extends "gauge" ? Gauge
  : Histogram;

/** An instrument for each row of the table, by its name in the code. */
export type Instruments = { readonly [Key in MetricKey]: InstrumentOf<typeof METRICS[Key]> };

/**
 * Creates one instrument for each row. Those that the mode does not have exist but are not
 * registered, so callers do not need to check the mode. Only the families that run start at zero.
 */
export function createInstruments(
  registry: Registry,
  mode: BackendMode,
  families: readonly IpFamily[],
): Instruments {
  const entries = Object.entries<Metric>(METRICS).map(([key, row]) => {
    const instrument = createInstrument(
      row,
      hasMetric(mode, row) && !row.isOnDemand ? [registry] : [],
    );
    showZeros(instrument, row, families);
    return [key, instrument];
  });
  // The mapped type gives the class of each row; Object.fromEntries() cannot.
  return Object.fromEntries(entries) as Instruments;
}

/** prom-client cannot set a counter to a total that is counted elsewhere. */
export function setCounter(counter: Counter, labels: Record<string, string>, total: number): void {
  counter.remove(labels);
  counter.inc(labels, total);
}

function createInstrument(row: Metric, registers: Registry[]): Counter | Gauge | Histogram {
  const { name, help, type, labels = {}, buckets = [] } = row;
  const options = { name, help, labelNames: Object.keys(labels), registers };
  if (type === "counter") return new Counter(options);
  return type === "gauge"
    ? new Gauge(options)
    : new Histogram({ ...options, buckets: [...buckets] });
}

/**
 * A rate needs the zero before the first event. Gauges have none: a timestamp of zero would look
 * like a sync in 1970.
 */
function showZeros(
  instrument: Counter | Gauge | Histogram,
  { labels = {}, startsAtZero }: Metric,
  families: readonly IpFamily[],
) {
  if (startsAtZero === false || Object.keys(labels).length === 0) return;
  const ofRun = { ...labels, ...(labels["ip_family"] && { "ip_family": families }) };
  for (const each of combinations(ofRun)) {
    if (instrument instanceof Counter) instrument.inc(each, 0);
    else if (instrument instanceof Histogram) instrument.zero(each);
  }
}

function combinations(
  labels: Readonly<Record<string, readonly string[]>>,
): readonly Record<string, string>[] {
  return Object.entries(labels).reduce<readonly Record<string, string>[]>(
    (before, [name, values]) =>
      before.flatMap((each) => values.map((value) => ({ ...each, [name]: value }))),
    [{}],
  );
}
