/**
 * The series of each Service as Prometheus text.
 *
 * Not by prom-client: it would write 32,000 lines in one go, and keep a copy of each counter. Not as one
 * string: to put 5 MB together and encode them holds up the event loop for 20 ms.
 *
 * @module
 */
import type { ServiceTrafficRow, ServiceTrafficTable } from "../proxy/service_traffic.ts";
import type { BackendMode } from "../proxy/backend.ts";
import type { Metric } from "./metric.ts";
import { SERVICE_METRICS } from "./service_metrics.ts";

/** Lines of one piece, about 0.5 ms of work. */
const PIECE_LINES = 512;

/**
 * Writes what the table holds of what a mode counts, piece by piece, with a pause after each; nothing
 * while it is empty.
 */
export async function* renderServiceSeries(
  table: ServiceTrafficTable,
  { mode, pause }: { readonly mode: BackendMode; readonly pause: () => Promise<void> },
): AsyncGenerator<string, void, void> {
  if (table.rows().next().done) return;
  for (const key of Object.keys(SERVICE_METRICS) as (keyof typeof SERVICE_METRICS)[]) {
    const { name, help, type, modes }: Metric = SERVICE_METRICS[key];
    if (modes !== undefined && !modes.includes(mode)) continue;
    let piece = `\n# HELP ${name} ${help}\n# TYPE ${name} ${type}\n`;
    let lines = 0;
    for (const row of table.rows()) {
      piece += `${name}{${labelsOf(row)}} ${row.traffic[key]}\n`;
      if (++lines % PIECE_LINES !== 0) continue;
      yield piece;
      piece = "";
      await pause();
    }
    yield piece;
  }
}

function labelsOf({ family, protocol, name }: ServiceTrafficRow): string {
  const labels = [
    ["namespace", name?.namespace ?? ""],
    ["service", name?.name ?? "other"],
    ["port_name", name?.port ?? ""],
    ["protocol", protocol],
    ["ip_family", family],
  ] as const;
  return labels.map(([label, value]) => `${label}="${escape(value)}"`).join(",");
}

/** A manifest may hold any text: none of it may end its label, or its line. */
function escape(value: string): string {
  return value.replace(/[\\"\n]/g, (character) => character === "\n" ? "\\n" : `\\${character}`);
}
