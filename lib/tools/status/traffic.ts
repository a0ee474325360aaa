import type { Clock } from "../../os/clock.ts";
import type { ServiceTrafficTable, TrafficFigures } from "../../proxy/service_traffic.ts";

/** The traffic of a node between two samples. */
export interface TrafficRate {
  /** Milliseconds since 1970. */
  readonly at: number;
  /** Opened connections and flows, each second. */
  readonly connections: number;
  /** In both directions, each second. */
  readonly bytes: number;
}

const PERIOD_MS = 10_000;
/** An hour. */
const MOST_SAMPLES = 360;

/** Samples the traffic of all Services every 10 s until the signal. Returns the last hour, oldest first. */
export function sampleTraffic(
  clock: Clock,
  table: ServiceTrafficTable,
  signal: AbortSignal,
): readonly TrafficRate[] {
  const rates: TrafficRate[] = [];
  const run = async () => {
    for (let before = trafficTotals(table);;) {
      const from = clock.now();
      await clock.sleep(PERIOD_MS, signal);
      const after = trafficTotals(table);
      rates.push({ at: clock.wallNow(), ...trafficRate(before, after, clock.now() - from) });
      if (rates.length > MOST_SAMPLES) rates.shift();
      before = after;
    }
  };
  // The end of the run rejects the sleep.
  run().catch(() => {});
  return rates;
}

/** The traffic of all Services since the start. Services that were deleted no longer count. */
export function trafficTotals(
  table: ServiceTrafficTable,
): Required<Pick<TrafficFigures, "bytesFromClients" | "bytesToClients" | "opened" | "open">> {
  const sum = { bytesFromClients: 0, bytesToClients: 0, opened: 0, open: 0 };
  for (const { traffic } of table.rows()) {
    sum.bytesFromClients += traffic.bytesFromClients;
    sum.bytesToClients += traffic.bytesToClients;
    sum.opened += traffic.opened;
    sum.open += traffic.open;
  }
  return sum;
}

/** The traffic between two totals. */
export function trafficRate(
  before: TrafficFigures,
  after: TrafficFigures,
  tookMs: number,
): Omit<TrafficRate, "at"> {
  // A deleted Service takes its counters along.
  const each = (of: (figures: TrafficFigures) => number) =>
    Math.max(0, of(after) - of(before)) / (Math.max(1, tookMs) / 1000);
  return {
    connections: each(({ opened = 0 }) => opened),
    bytes: each(({ bytesFromClients, bytesToClients }) => bytesFromClients + bytesToClients),
  };
}
