/**
 * Prometheus' text format, read as strictly as Prometheus reads it.
 *
 * @module
 */

/** One line with a value. */
export interface PrometheusSample {
  /** With `_bucket`, `_sum` or `_count` for parts of a histogram. */
  readonly name: string;
  readonly labels: ReadonlyMap<string, string>;
  readonly value: number;
}

/** One metric. */
export interface PrometheusMetric {
  readonly type: string;
  readonly samples: readonly PrometheusSample[];
}

const COMMENT = /^# (HELP|TYPE) ([a-zA-Z_:][a-zA-Z0-9_:]*) (.+)$/;
const SAMPLE = /^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (-?(?:[\d.]+(?:e[+-]?\d+)?|Inf|NaN))$/;
const LABEL = /([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)/gy;

/** Metrics by name. Throws an Error that names the first line of another format. */
export function parsePrometheusText(text: string): ReadonlyMap<string, PrometheusMetric> {
  const metrics = new Map<string, PrometheusMetric & { readonly samples: PrometheusSample[] }>();
  let current = "";
  for (const line of text.split("\n")) {
    if (line === "") continue;
    const [, comment, name = "", rest = ""] = COMMENT.exec(line) ?? [];
    if (comment === "HELP") continue;
    if (comment === "TYPE") {
      if (metrics.has(name)) throw new Error(`Cannot read metrics: a second TYPE of ${name}`);
      metrics.set(name, { type: rest, samples: [] });
      current = name;
      continue;
    }
    const sample = parseSample(line);
    const part = sample.name.slice(current.length);
    const metric = metrics.get(current);
    const isPart = part === "" ||
      (metric?.type === "histogram" && ["_bucket", "_sum", "_count"].includes(part));
    if (!metric || !sample.name.startsWith(current) || !isPart) {
      throw new Error(`Cannot read metrics: '${line}' does not follow its TYPE`);
    }
    metric.samples.push(sample);
  }
  return metrics;
}

function parseSample(line: string): PrometheusSample {
  const [, name, labelText = "", value] = SAMPLE.exec(line) ?? [];
  if (name === undefined) throw new Error(`Cannot read metrics: '${line}'`);
  const labels = [...labelText.matchAll(LABEL)];
  if (labels.map(([text]) => text).join("") !== labelText) {
    throw new Error(`Cannot read metrics: labels of '${line}'`);
  }
  return {
    name,
    labels: new Map(labels.map(([, label, text]) => [label!, text!])),
    value: Number(value!.replace("Inf", "Infinity")),
  };
}

/** Names of labels over all samples, without the `le` of buckets, sorted. */
export function labelNames({ samples }: PrometheusMetric): readonly string[] {
  const names = new Set(samples.flatMap(({ labels }) => [...labels.keys()]));
  names.delete("le");
  return [...names].sort();
}

/** The bounds of the buckets of each series of a histogram, as they are written. */
export function bucketBounds({ samples }: PrometheusMetric): readonly (readonly string[])[] {
  const bounds = new Map<string, string[]>();
  for (const { labels } of samples) {
    const le = labels.get("le");
    if (le === undefined) continue;
    const series = [...labels].filter(([label]) => label !== "le").join(" ");
    bounds.set(series, [...bounds.get(series) ?? [], le]);
  }
  return [...bounds.values()];
}
