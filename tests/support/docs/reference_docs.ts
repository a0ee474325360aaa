/** docs/flags.md and docs/metrics.md, made from the tables in the code. */
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

/** The end of what is written by hand; the tables behind it are made from those in the code. */
const GENERATED = "\n`deno task docs`\n";

function introductionOf(page: string): string {
  return page.slice(0, page.indexOf(GENERATED)) + GENERATED;
}

/** docs/flags.md with its tables made again. */
export function flagsPage(page: string): string {
  const sections = FLAG_GROUPS.map((group) => {
    const rows = FLAG_ROWS.filter((flag) => flag.group === group).map(flagCells);
    const titles = ["Flag", "Type", "Default", "Field of the file", "With `--config`", "Meaning"];
    return `\n## ${group}\n\n${markdownTable(titles, rows)}`;
  });
  return introductionOf(page) + sections.join("") + featureGateSection();
}

function featureGateSection(): string {
  const introduction = "Set by `--feature-gates` or `featureGates`. A name that resembles one in " +
    "this table is an error, because it is probably misspelt. Gates of other Kubernetes programs " +
    `and of older releases (${
      RETIRED_GATES.map(code).join(", ")
    }) cause a warning and have no effect.`;
  const rows: readonly FeatureGate[] = FEATURE_GATES;
  const cells = rows.map(({ name, stage, default: value, locked, effect }) => [
    code(name),
    stage,
    locked ? `${value}, locked` : String(value),
    effect,
  ]);
  const titles = ["Gate", "Stage", "Default", "Effect"];
  const text = wrapText(introduction, 100);
  return `\n## Feature gates\n\n${text}\n\n${markdownTable(titles, cells)}`;
}

/** docs/metrics.md with its table made again. */
export function metricsPage(page: string): string {
  const titles = ["Metric", "Type", "Labels", "Modes", "Meaning"];
  return `${introductionOf(page)}\n${markdownTable(titles, METRIC_ROWS.map(metricCells))}`;
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

/** A table with columns of one width, as `deno fmt` would have it. */
function markdownTable(titles: readonly string[], rows: readonly (readonly string[])[]): string {
  const cells = [titles, ...rows].map((row) => row.map((cell) => cell.replaceAll("|", "\\|")));
  const widths = titles.map((_, column) => Math.max(3, ...cells.map((row) => row[column]!.length)));
  const lines = cells.map((row) => row.map((cell, column) => cell.padEnd(widths[column]!)));
  const [head, ...body] = lines;
  return [head!, widths.map((width) => "-".repeat(width)), ...body]
    .map((row) => `| ${row.join(" | ")} |\n`).join("");
}
