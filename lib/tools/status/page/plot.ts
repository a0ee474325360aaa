/**
 * Draws values over time as SVG, without any script. Pure. A sentence has the same content for readers
 * who cannot see the plot.
 */
import { html } from "hono/html";
import type { Html } from "./paint_html.ts";

const WIDTH = 720;
const HEIGHT = 140;
/** Room for the labels of the axes. */
const LEFT = 80;
const BOTTOM = 24;
const TOP = 12;
const RIGHT = 8;

/** A value at a time in milliseconds since 1970; `undefined` is a failure. */
export interface Sample {
  readonly at: number;
  readonly value: number | undefined;
}

/** Draws samples, which are sorted by time, and says what they are. */
export function plot(
  title: string,
  samples: readonly Sample[],
  valueText: (value: number) => string,
): Html {
  const values = samples.flatMap(({ value }) => value ?? []);
  const [first, last] = [samples[0], samples.at(-1)];
  if (first === undefined || last === undefined) return html`<p>${title}: nothing yet.</p>`;
  const highest = Math.max(1e-9, ...values);
  const span = Math.max(1, last.at - first.at);
  const x = (at: number) => (LEFT + (WIDTH - LEFT - RIGHT) * (at - first.at) / span).toFixed(1);
  const y = (value: number) =>
    (HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * value / highest).toFixed(1);
  const median = values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0;
  const failed = samples.length - values.length;
  const words = `${title}: ${valueText(median)} at the median, ${valueText(highest)} at most` +
    (failed === 0 ? "." : `, ${failed} failed.`);
  const line = samples.flatMap(({ at, value }) =>
    value === undefined ? [] : `${x(at)},${y(value)}`
  );
  return html`
    <figure>
      <svg viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-label="${words}">
    ${[0, highest].map((value) =>
      html`<line class="grid" x1="${LEFT}" x2="${WIDTH - RIGHT}" y1="${y(value)}" y2="${
        y(value)
      }" />
<text class="axis end" x="${LEFT - 6}" y="${y(value)}" dy="0.32em">${valueText(value)}</text>`
    )}
    <polyline class="line" points="${line.join(" ")}" />
    ${samples.map(({ at, value }) =>
      value === undefined
        ? html`<path class="failed" d="M${x(at)} ${y(0)}m-4-4l8 8m0-8l-8 8" />`
        : samples.length < 40
        ? html`<circle class="line" cx="${x(at)}" cy="${y(value)}" r="2" />`
        : ""
    )}
    <text class="axis" x="${LEFT}" y="${HEIGHT - 6}">${clockText(first.at)}</text>
    <text class="axis end" x="${WIDTH - RIGHT}" y="${HEIGHT - 6}">${clockText(last.at)} UTC</text>
      </svg>
      <figcaption>${words}</figcaption>
    </figure>
  `;
}

function clockText(at: number): string {
  return new Date(at).toISOString().slice(11, 19);
}
