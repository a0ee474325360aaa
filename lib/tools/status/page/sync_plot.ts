/**
 * Draws the durations of syncs. Pure. Shapes as well as colors distinguish families and outcomes,
 * and a sentence has the same content for readers who cannot see the plot.
 */
import { html } from "hono/html";
import type { SyncTime } from "../../changes/change_entry.ts";
import { durationText } from "../number_texts.ts";

/** The result of a template. */
export type Html = ReturnType<typeof html>;

const WIDTH = 720;
const HEIGHT = 180;
/** Room for the labels of the axes. */
const LEFT = 64;
const BOTTOM = 24;
const TOP = 8;
const RIGHT = 8;

/** Lines of the vertical axis, which is logarithmic to show syncs of 1 ms and of 10 s. */
const GRID = [
  { ms: 1, label: "1 ms" },
  { ms: 10, label: "10 ms" },
  { ms: 100, label: "100 ms" },
  { ms: 1000, label: "1 s" },
  { ms: 10_000, label: "10 s" },
] as const;
/** Shortest time of the horizontal axis. */
const SHORTEST_SPAN_MS = 60_000;
/** Half the size of a mark. */
const MARK = 4;

/** Draws the plot, or a sentence if there was no sync. Samples are sorted by time. */
export function syncPlot(samples: readonly SyncTime[]): Html {
  const [first, last] = [samples[0], samples.at(-1)];
  if (first === undefined || last === undefined) return html`<p>There has been no sync yet.</p>`;
  const span = Math.max(SHORTEST_SPAN_MS, last.at - first.at);
  const from = last.at - span;
  const x = (at: number) => LEFT + (WIDTH - LEFT - RIGHT) * (at - from) / span;
  return html`<svg viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-labelledby="plot-title plot-text">
<title id="plot-title">Time that each sync took</title>
<desc id="plot-text">${describe(samples)}</desc>
${GRID.map(gridLine)}
${samples.map((sample) => mark(sample, { x: x(sample.at), y: height(sample.durationMs) }))}
<text class="axis" x="${LEFT}" y="${HEIGHT - 6}">${clockText(from)}</text>
<text class="axis end" x="${WIDTH - RIGHT}" y="${HEIGHT - 6}">${clockText(last.at)} UTC</text>
</svg>
<p class="legend" aria-hidden="true">${legend()}</p>
<p>${describe(samples)}</p>`;
}

/** Formats milliseconds since 1970 as `14:03:22` in UTC. */
export function clockText(at: number): string {
  return new Date(at).toISOString().slice(11, 19);
}

function describe(samples: readonly SyncTime[]): string {
  const durations = samples.map(({ durationMs }) => durationMs).toSorted((a, b) => a - b);
  const median = durationText(durations[Math.floor(durations.length / 2)]!);
  const longest = durationText(durations.at(-1)!);
  const failed = samples.filter(({ outcome }) => outcome === "failed").length;
  const count = samples.length === 1 ? "1 sync" : `The last ${samples.length} syncs`;
  return `${count}: ${median} at the median, ${longest} at most, ${failed || "none"} failed.`;
}

function gridLine({ ms, label }: typeof GRID[number]): Html {
  const y = height(ms).toFixed(1);
  return html`
    <line class="grid" x1="${LEFT}" x2="${WIDTH - RIGHT}" y1="${y}" y2="${y}" />
    <text class="axis end" x="${LEFT - 6}" y="${y}" dy="0.32em">${label}</text>
  `;
}

function height(ms: number): number {
  const [lowest, highest] = [GRID[0].ms, GRID.at(-1)!.ms];
  const part = Math.log(Math.min(Math.max(ms, lowest), highest) / lowest) /
    Math.log(highest / lowest);
  return HEIGHT - BOTTOM - part * (HEIGHT - BOTTOM - TOP);
}

function mark(
  { family, outcome }: Pick<SyncTime, "family" | "outcome">,
  { x, y }: { readonly x: number; readonly y: number },
): Html {
  const [cx, cy] = [x.toFixed(1), y.toFixed(1)];
  if (outcome === "failed") {
    return html`
      <path class="failed" d="M${cx} ${cy}m-4-4l8 8m0-8l-8 8" />
    `;
  }
  if (family === "IPv4") {
    return html`
      <circle class="ipv4" cx="${cx}" cy="${cy}" r="${MARK}" />
    `;
  }
  const [left, top] = [(x - MARK).toFixed(1), (y - MARK).toFixed(1)];
  return html`
    <rect class="ipv6" x="${left}" y="${top}" width="${2 * MARK}" height="${2 * MARK}" />
  `;
}

function legend(): Html {
  const item = (text: string, sample: Pick<SyncTime, "family" | "outcome">) =>
    html`<span><svg viewBox="0 0 12 12">${mark(sample, { x: 6, y: 6 })}</svg> ${text}</span>`;
  return html`${item("IPv4", { family: "IPv4", outcome: "applied" })}
${item("IPv6", { family: "IPv6", outcome: "applied" })}
${item("failed", { family: "IPv4", outcome: "failed" })}`;
}
