/**
 * docs/flags.md and docs/metrics.md, made from the tables in the code.
 *
 * @module
 */
import { flagDefault } from "../../lib/config/flag_help.ts";
import { type Flag, FLAG_GROUPS } from "../../lib/config/flag.ts";
import { FEATURE_GATES, type FeatureGate, RETIRED_GATES } from "../../lib/config/feature_gates.ts";
import { FLAG_ROWS } from "../../lib/config/flags.ts";
import { wrapText } from "../../lib/config/wrap_text.ts";
import type { Metric } from "../../lib/metrics/metric.ts";
import { METRIC_ROWS } from "../../lib/metrics/metric_table.ts";

const FLAGS_INTRODUCTION = `# Flags

Names, types and defaults are kube-proxy's where it has the flag. \`_\` and \`-\` mean the same. A value
follows after \`=\` or as the next argument; booleans take one only after \`=\`. Lists are separated by
commas or given more than once. A flag that does not exist, a value that cannot be read and a
configuration that is wrong end the program with exit code 2, where kube-proxy has 1 for every failure;
everything else that fails has 1 here too. A verb that SIGINT or
SIGTERM ends before it is done has 130 or 143, and the first signal is enough. Every mistake is named, not only the first one, with its
flag or with file, line and column, and with the path that kube-proxy's messages have.

"Beside \`--config\`" says what becomes of a flag when there is a configuration file too: it is
_ignored_ with a warning (as kube-proxy does, nothing is merged), it _wins_ over the file, or it is
_used_, since the file has no such field. The patterns of \`--vmodule\` are _merged_: they come before
those of the file.

The file is watched, by whatever way it is written: in place, renamed over, or by the swap of a
ConfigMap's symlink. Changes of \`logging.verbosity\`, \`logging.vmodule\`, \`clusterCIDR\`,
\`detectLocalMode\`, \`detectLocal\`, \`nodePortAddresses\` and \`masqueradeAll\` are taken up at once. For any
other change that counts in the mode that runs the program ends with 1, after the drain, and its
supervisor starts it again (kube-proxy does so for every change that it sees). A file that is wrong or
gone is told in the log, and the last good configuration stays.

Made from \`lib/config/flags.ts\`. To make it again:

\`UPDATE_DOCS=1 deno test -A tests/docs_test.ts\`
`;

const METRICS_INTRODUCTION = `# Metrics

Served as Prometheus text on \`--metrics-bind-address\` under \`/metrics\`. What begins with \`kubeproxy_\`
has kube-proxy's name, type, labels, buckets and modes, what begins with \`kubernetes_\`, \`rest_client_\`
or \`process_\` those of every Kubernetes component, so that dashboards and alerts go on working; what
begins with \`kube_relay_\` is ours. A metric is served in the modes named beside it and in no other.
Each label has a bounded set of values: the number of series does not grow with the cluster. Values in
parentheses stand for one that the process or the cluster fills in.

## What is not there, and why

- \`go_*\`: there is no Go runtime. \`kube_relay_event_loop_delay_max_seconds\` and the \`process_*\` ones say
  how the process is doing.
- \`promhttp_metric_handler_*\`: they count the requests of Prometheus' Go library. \`up\` and
  \`scrape_duration_seconds\` of Prometheus itself say the same.
- \`/debug/pprof/\`: profiles of a Go program; the path answers 404.
- \`process_open_fds\` and \`process_virtual_memory_bytes\`: they cannot be had without
  reading \`/proc\`, which Deno opens only to a program that may do everything.
- Of \`rest_client_*\`: sizes, rate limiter and retries; there is no rate limiter here, and each attempt counts
  as a request. Watches are in \`rest_client_requests_total\` only.
- Of \`kubernetes_build_info\`: the labels that describe a build with Go.
- \`kubeproxy_iptables_ct_state_invalid_dropped_packets_total\` and
  \`kubeproxy_iptables_localhost_nodeports_accepted_packets_total\` have no series where the kernel
  lacks nfacct (kube-proxy: the same) or the program \`nfacct\` is not installed (kube-proxy does not need it).
  \`kube-relay doctor\` names what is missing. \`--cleanup\` removes the counters.

## Services one by one

With \`--service-counters\` \`kube_relay_service_*\` tell what goes through each port of a Service: in userspace
mode bytes of data and connections, in nftables mode bytes and packets of IP. The other modes count nothing, and say
so when they start. The first 2,000 Services that carry traffic (and at most 8,000 of their ports, both IP families
counted) have series of their own for as long as they exist; a Service without traffic takes no place.
What comes when all places are taken is summed under \`service="other"\` with an empty namespace, and stays
there: no counter ever jumps from one series to another. The series of a Service end with it; connections
that outlive it are not counted any further. A Service that is made anew begins at zero.
\`kube-relay status\` shows the same figures.

In nftables mode the kernel counts, in a table of its own, and is asked when somebody asks for the metrics or the
status: [what is counted, and what it costs](nftables.md#counting). The counters outlive a restart.

What it costs in userspace mode, by \`deno task bench:forwarding --only=kube-relay\` (with and without in turn, within the same
minutes, CPU per unit of work): too little to be told from the noise of the machine. Over 9 rounds of UDP round
trips and 4 of each TCP workload the CPU without, divided by that with, lay between 0.85 and 1.29. Without the flag all that
is left is one comparison for each piece of data. A scrape with all 8,000 ports (32,000 series, 4.8 MB) takes
0.2 s and stops the event loop for less than 10 ms at a time.

Made from \`lib/metrics/metric_table.ts\`. To make it again:

\`UPDATE_DOCS=1 deno test -A tests/docs_test.ts\`

## The table
`;

/** docs/flags.md. */
export function flagsPage(): string {
  const sections = FLAG_GROUPS.map((group) => {
    const rows = FLAG_ROWS.filter((flag) => flag.group === group).map(flagCells);
    const titles = ["Flag", "Type", "Default", "Field of the file", "Beside `--config`", "Meaning"];
    return `\n## ${group}\n\n${markdownTable(titles, rows)}`;
  });
  return wrapParagraphs(FLAGS_INTRODUCTION) + sections.join("") + featureGateSection();
}

function featureGateSection(): string {
  const introduction = `## Feature gates

Set by \`--feature-gates\` or \`featureGates\`. What looks like a misspelt name of
this table is an error. Gates of other programs of Kubernetes, and those of older releases
(${RETIRED_GATES.map(code).join(", ")}) are taken
with a warning and have no effect.
`;
  const rows: readonly FeatureGate[] = FEATURE_GATES;
  const cells = rows.map(({ name, stage, default: value, locked, effect }) => [
    code(name),
    stage,
    locked ? `${value}, locked` : String(value),
    effect,
  ]);
  const titles = ["Gate", "Stage", "Default", "Effect"];
  return `\n${wrapParagraphs(introduction)}\n${markdownTable(titles, cells)}`;
}

/** docs/metrics.md. */
export function metricsPage(): string {
  const titles = ["Metric", "Type", "Labels", "Modes", "Meaning"];
  return `${wrapParagraphs(METRICS_INTRODUCTION)}\n${
    markdownTable(titles, METRIC_ROWS.map(metricCells))
  }`;
}

function flagCells(flag: Flag): readonly string[] {
  const { aliases = [], name, type, choices, field, withConfig, help, deprecated } = flag;
  const names = [name, ...aliases].map((each) => code(`${each.length === 1 ? "-" : "--"}${each}`));
  return [
    names.join(" "),
    choices ? choices.filter((choice) => choice !== "").map(code).join(" ") : type,
    code(flagDefault(flag)),
    code(field ?? ""),
    withConfig,
    deprecated === undefined ? help : `${help}. Deprecated: ${deprecated}`,
  ];
}

function metricCells({ name, type, labels = {}, modes, help, buckets }: Metric): readonly string[] {
  const bounds = buckets
    ? ` (${buckets.length} buckets, ${buckets[0]} to ${buckets.at(-1)} s)`
    : "";
  const labelTexts = Object.entries(labels)
    .map(([label, values]) => `${code(label)}: ${values.map(labelValue).join(", ")}`);
  return [code(name), `${type}${bounds}`, labelTexts.join("; "), modes?.join(", ") ?? "all", help];
}

/** Nothing would be unseen, and angle brackets would be taken for HTML. */
function labelValue(value: string): string {
  if (value === "") return '""';
  return value.startsWith("<") ? code(value) : value;
}

function code(text: string): string {
  return text === "" ? "" : `\`${text}\``;
}

/** Lines as `deno fmt` breaks them. */
function wrapParagraphs(text: string): string {
  return text.trimEnd().split("\n\n")
    .map((paragraph) => paragraph.startsWith("- ") ? wrapItems(paragraph) : wrapOne(paragraph))
    .join("\n");
}

function wrapOne(paragraph: string): string {
  return `${wrapText(paragraph, { width: 100 })}\n`;
}

function wrapItems(list: string): string {
  return list.slice("- ".length).split("\n- ")
    .map((item) => `- ${wrapText(item, { width: 100, indent: 2 }).trimStart()}\n`).join("");
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
