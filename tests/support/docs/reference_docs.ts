/**
 * docs/flags.md and docs/metrics.md, made from the tables in the code.
 *
 * @module
 */
import { flagDefault } from "../../../lib/config/flag_help.ts";
import { type Flag, FLAG_GROUPS } from "../../../lib/config/flag.ts";
import {
  FEATURE_GATES,
  type FeatureGate,
  RETIRED_GATES,
} from "../../../lib/config/feature_gates.ts";
import { FLAG_ROWS } from "../../../lib/config/flags.ts";
import { wrapText } from "../../../lib/config/wrap_text.ts";
import type { Metric } from "../../../lib/metrics/metric_table.ts";
import { METRIC_ROWS } from "../metric_rows.ts";

const FLAGS_INTRODUCTION = `# Flags

Names, types and defaults are those of kube-proxy if it has the flag. \`_\` and \`-\` are equivalent in
names. A value follows after \`=\` or as the next argument; booleans take one only after \`=\`. Lists are
separated by commas, or the flag is repeated.

An unknown flag, an invalid value or an invalid configuration exits with status 2. Every mistake is
reported, not only the first one, with its flag or with file, line and column. Every other failure exits
with status 1. kube-proxy uses 1 for both. A verb that is ended by SIGINT or SIGTERM exits with 130 or 143.

"With \`--config\`" describes how a flag combines with a configuration file. The flag is _ignored_
with a warning (as in kube-proxy, nothing is merged), it _wins_ over the file, or it is _used_ because the
file has no such field. The patterns of \`--vmodule\` are _merged_: they come before those of the file.

The file is watched, whether it is written in place, replaced by a rename, or swapped like a ConfigMap.
Changes of \`logging.verbosity\`, \`logging.vmodule\`, \`clusterCIDR\`, \`detectLocalMode\`,
\`detectLocal\`, \`nodePortAddresses\`, \`masqueradeAll\`, of \`start\`, \`deny\`, \`logPerMinute\` and
\`cutConnections\` of \`networkPolicy\`, and of
most of [\`routing\`](load_balancer.md#changing-the-settings) are applied at once. After any
other change that matters in the running mode, kube-relay drains and exits with status 1, and its supervisor restarts it.
kube-proxy exits after every change. If the file becomes invalid or is removed, the log says so and the
last valid configuration stays in use.

Generated from \`lib/config/flags.ts\` by:

\`deno task docs\`
`;

const METRICS_INTRODUCTION = `# Metrics

\`/metrics\` on \`--metrics-bind-address\` serves Prometheus text. Existing dashboards and alerts keep
working: \`kubeproxy_*\` metrics have the names, types, labels, buckets and modes of kube-proxy, and
\`kubernetes_*\`, \`rest_client_*\` and \`process_*\` those of every Kubernetes component. \`kube_relay_*\`
metrics are specific to kube-relay. A metric is served only in the modes that the table names. Each
label has a bounded set of values, so the number of series does not grow with the cluster. Values in
parentheses are placeholders. Series with \`ip_family\` exist for the IP families that run on the node:
both, if its kernel has both, whatever the cluster uses.

## Missing metrics

- \`go_*\`: there is no Go runtime. Use \`kube_relay_event_loop_delay_max_seconds\` and \`process_*\`.
- \`promhttp_metric_handler_*\`: they count requests in Prometheus' Go library. Use \`up\` and
  \`scrape_duration_seconds\` of Prometheus.
- \`/debug/pprof/\` returns 404, because it serves profiles of Go programs.
- \`process_open_fds\` and \`process_virtual_memory_bytes\`: they need \`/proc\`, which Deno opens only to
  programs with all permissions.
- \`rest_client_*\` for sizes, rate limiter and retries: there is no rate limiter, and each attempt counts
  as a request. Watches are counted only in \`rest_client_requests_total\`.
- The labels of \`kubernetes_build_info\` that describe a Go build.
- \`kubeproxy_iptables_ct_state_invalid_dropped_packets_total\` and
  \`kubeproxy_iptables_localhost_nodeports_accepted_packets_total\` have no series if the kernel lacks
  nfacct (as in kube-proxy) or the program \`nfacct\` is not installed (which kube-proxy does not need).
  \`kube-relay doctor\` names the missing part. \`--cleanup\` removes the counters.

## Metrics of each Service

\`--service-counters\` enables \`kube_relay_service_*\`, which count the traffic of each port of a Service.
In userspace mode they count payload bytes and connections; in nftables mode, bytes and packets of IP. The
other modes count nothing and log that at the start. \`kube-relay status\` shows the same figures.

The first 2,000 Services with traffic (and at most 8,000 of their ports in both IP families) have their own
series while they exist. All others are summed under \`service="other"\` with an empty namespace, and stay
there, so a counter never moves from one series to another. The series of a Service end with it; connections
that continue are no longer counted. A Service that is created again starts at zero.

In nftables mode the kernel counts. kube-relay reads the counters for each request of metrics or status. They
survive a restart. [Counting](nftables.md#counting) describes the counted packets and the cost.

In userspace mode the cost is below the noise of the measurement, made with
the task \`bench:forwarding\` alternating with and without counters. The ratio of CPU without and with counters was between
0.85 and 1.29, over 9 rounds of UDP and 4 of each TCP workload. A scrape of all 8,000 ports (32,000 series,
4.8 MB) takes 0.2 s and blocks the event loop for less than 10 ms at a time.

## All metrics

Generated from \`lib/metrics/metric_table.ts\` by:

\`deno task docs\`
`;

/** docs/flags.md. */
export function flagsPage(): string {
  const sections = FLAG_GROUPS.map((group) => {
    const rows = FLAG_ROWS.filter((flag) => flag.group === group).map(flagCells);
    const titles = ["Flag", "Type", "Default", "Field of the file", "With `--config`", "Meaning"];
    return `\n## ${group}\n\n${markdownTable(titles, rows)}`;
  });
  return wrapParagraphs(FLAGS_INTRODUCTION) + sections.join("") + featureGateSection();
}

function featureGateSection(): string {
  const introduction = `## Feature gates

Set by \`--feature-gates\` or \`featureGates\`. A name that resembles one in
this table is an error, because it is probably misspelt. Gates of other Kubernetes programs and of older
releases (${RETIRED_GATES.map(code).join(", ")}) cause
a warning and have no effect.
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
  const { aliases = [], name, type, choices, patternHelp, field, withConfig, help, deprecated } =
    flag;
  const names = [name, ...aliases].map((each) => code(`${each.length === 1 ? "-" : "--"}${each}`));
  return [
    names.join(" "),
    choices
      ? choices.filter((choice) => choice !== "").map(code).join(" ") +
        (patternHelp === undefined ? "" : ` or ${patternHelp}`)
      : type,
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
