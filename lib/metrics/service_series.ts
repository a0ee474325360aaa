/**
 * The series of each Service as Prometheus text.
 *
 * Not by prom-client: it would write 32,000 lines in one go, and keep a copy of each counter.
 *
 * @module
 */
import type { ServiceTrafficRow, ServiceTrafficTable } from "../proxy/service_traffic.ts";
import { SERVICE_METRICS } from "./service_metrics.ts";

/** Lines between two turns of the event loop, about 0.3 ms of work. */
const SLICE_SIZE = 512;

/** Writes what the table holds, with pauses; nothing at all while it is empty. */
export async function renderServiceSeries(
  table: ServiceTrafficTable,
  { pause }: { readonly pause: () => Promise<void> },
): Promise<string> {
  // One pass over the rows, so that the figures of a Service are of the same moment.
  const keys = Object.keys(SERVICE_METRICS) as (keyof typeof SERVICE_METRICS)[];
  const texts = keys.map((key) => {
    const { name, help, type } = SERVICE_METRICS[key];
    return `# HELP ${name} ${help}\n# TYPE ${name} ${type}\n`;
  });
  let lines = 0;
  for (const row of table.rows()) {
    const labels = labelsOf(row);
    for (const [index, key] of keys.entries()) {
      texts[index] += `${SERVICE_METRICS[key].name}{${labels}} ${row.traffic[key]}\n`;
    }
    lines += keys.length;
    if (lines % SLICE_SIZE === 0) await pause();
  }
  return lines === 0 ? "" : `\n${texts.join("\n")}`;
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
