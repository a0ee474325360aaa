/**
 * docs/flags.md and docs/metrics.md, made from the tables in the code.
 *
 * @module
 */
import { flagDefault } from "../../lib/config/flag_help.ts";
import { type Flag, FLAG_GROUPS } from "../../lib/config/flag.ts";
import { FLAG_ROWS } from "../../lib/config/flags.ts";
import { wrapText } from "../../lib/config/wrap_text.ts";
import type { Metric } from "../../lib/metrics/metric.ts";
import { METRIC_ROWS } from "../../lib/metrics/metric_table.ts";

const FLAGS_INTRODUCTION = `# Flags

Names, types and defaults are kube-proxy's where it has the flag. \`_\` and \`-\` mean the same. A value
follows after \`=\` or as the next argument; booleans take one only after \`=\`. Lists are separated by
commas or given more than once. A flag that does not exist, a value that cannot be read and a mode
that this release does not have end the program with exit code 2; every mistake is named, not only
the first one.

"Beside \`--config\`" says what becomes of a flag when there is a configuration file too: it is
_ignored_ with a warning (as kube-proxy does, nothing is merged), it _wins_ over the file, or it is
_used_, since the file has no such field.

Made from \`lib/config/flags.ts\`. To make it again:

\`UPDATE_DOCS=1 deno test -A tests/docs_test.ts\`
`;

const METRICS_INTRODUCTION = `# Metrics

Served as Prometheus text on \`--metrics-bind-address\` under \`/metrics\`. What begins with \`kubeproxy_\`
or \`kubernetes_\` has kube-proxy's name, type, labels and buckets, so that its dashboards and alerts go
on working; what begins with \`kube_relay_\` is ours. Metrics of kube-proxy that belong to a mode that
this release does not have are left out. Each label has a fixed set of values: the number of series
does not grow with the cluster.

\`process_open_fds\` is missing: it cannot be had without reading \`/proc\`, which Deno opens only to a
program that may do everything.

Made from \`lib/metrics/metric_table.ts\`. To make it again:

\`UPDATE_DOCS=1 deno test -A tests/docs_test.ts\`
`;

/** docs/flags.md. */
export function flagsPage(): string {
  const sections = FLAG_GROUPS.map((group) => {
    const rows = FLAG_ROWS.filter((flag) => flag.group === group).map(flagCells);
    const titles = ["Flag", "Type", "Default", "Field of the file", "Beside `--config`", "Meaning"];
    return `\n## ${group}\n\n${markdownTable(titles, rows)}`;
  });
  return wrapParagraphs(FLAGS_INTRODUCTION) + sections.join("");
}

/** docs/metrics.md. */
export function metricsPage(): string {
  const titles = ["Metric", "Type", "Labels", "Meaning"];
  return `${wrapParagraphs(METRICS_INTRODUCTION)}\n${
    markdownTable(titles, METRIC_ROWS.map(metricCells))
  }`;
}

function flagCells(flag: Flag): readonly string[] {
  const { aliases = [], name, type, choices, field, withConfig, help, deprecated } = flag;
  const names = [name, ...aliases].map((each) => code(`${each.length === 1 ? "-" : "--"}${each}`));
  return [
    names.join(" "),
    choices ? choices.map(code).join(" ") : type,
    code(flagDefault(flag)),
    code(field ?? ""),
    withConfig,
    deprecated === undefined ? help : `${help}. Deprecated: ${deprecated}`,
  ];
}

function metricCells({ name, type, labels = {}, help, buckets }: Metric): readonly string[] {
  const bounds = buckets
    ? ` (${buckets.length} buckets, ${buckets[0]} to ${buckets.at(-1)} s)`
    : "";
  const labelTexts = Object.entries(labels)
    .map(([label, values]) => `${code(label)}: ${values.join(", ")}`);
  return [code(name), `${type}${bounds}`, labelTexts.join("; "), help];
}

function code(text: string): string {
  return text === "" ? "" : `\`${text}\``;
}

/** Lines as `deno fmt` breaks them. */
function wrapParagraphs(text: string): string {
  return text.trimEnd().split("\n\n")
    .map((paragraph) => `${wrapText(paragraph, { width: 100 })}\n`).join("\n");
}

/** A table with columns of one width, as `deno fmt` would have it. */
function markdownTable(titles: readonly string[], rows: readonly (readonly string[])[]): string {
  const cells = [titles, ...rows].map((row) => row.map((cell) => cell.replaceAll("|", "\\|")));
  const widths = titles.map((_, column) => Math.max(3, ...cells.map((row) => row[column]!.length)));
  const lines = cells.map((row) => row.map((cell, column) => cell.padEnd(widths[column]!)));
  const [head, ...body] = lines;
  return [head!, widths.map((width) => "-".repeat(width)), ...body]
    .map((row) => `| ${row.join(" | ")} |\n`).join("");
}
