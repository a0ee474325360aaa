/** The status page and its sections as HTML. Pure. Sections are reports, tiles and plots. */
import { html, raw } from "hono/html";
import { countText, groupedText } from "../../../log/count_text.ts";
import type { HostFinding } from "../../../proxy/host_checks.ts";
import type { ChangeEntry, SyncTime } from "../../changes/change_entry.ts";
import type { Report, Row } from "../../report.ts";
import { durationText, sizeText } from "../number_texts.ts";
import {
  controllerPart,
  foremostServices,
  loopRows,
  serviceTable,
  statusAnswer,
  statusProblems,
} from "../status_answer.ts";
import type { StatusReport } from "../status_report.ts";
import { type Html, paintHtml, text } from "./paint_html.ts";
import type { TrafficRate } from "../traffic.ts";

/** The content of the page at one time. */
export interface PageModel {
  readonly report: StatusReport;
  /** The filter of the reader, as for `status --filter`. */
  readonly filter: string;
  /** Oldest first. */
  readonly syncs: readonly SyncTime[];
  /** Oldest first. */
  readonly changes: readonly ChangeEntry[];
  /** Traffic of the last hour, oldest first; absent where it is not counted. */
  readonly traffic?: readonly TrafficRate[];
  /** Problems of this machine, found by the checks of `doctor`. */
  readonly doctor: {
    /** The time of the checks, in milliseconds since 1970; absent during the first check. */
    readonly at?: number;
    readonly findings: readonly HostFinding[];
  };
}

/** A part of the page that is replaced as a whole when it has changed. */
export interface PageSection {
  /** The id of its element. */
  readonly id: string;
  readonly html: string;
}

/** The interval at which a browser without scripts reloads the page. */
const RELOAD_SECONDS = 10;
/** Rows of the table of Services; more would make each update megabytes. */
const MOST_SERVICES = 200;
const MOST_PROBLEMS = 30;
const MOST_DRIFTS = 6;
const MOST_CHANGES = 50;

/** Parts of the page by id, in its order. */
const SECTIONS: Readonly<
  Record<string, { readonly heading: string; readonly render: (model: PageModel) => Html | "" }>
> = {
  summary: { heading: "This node", render: summary },
  problems: { heading: "Problems", render: problems },
  traffic: { heading: "Traffic", render: traffic },
  syncs: { heading: "Syncs", render: syncPlot },
  services: { heading: "Services", render: services },
  controllers: { heading: "Policies and routing", render: controllers },
  changes: { heading: "Last changes", render: changes },
  doctor: { heading: "Doctor’s findings", render: doctor },
};

/** Renders each section in a step, in the order of the page. A section without content is left out. */
export function* pageSections(model: PageModel): Generator<PageSection> {
  for (const [id, { render }] of Object.entries(SECTIONS)) {
    const html = String(render(model));
    if (html !== "") yield { id, html };
  }
}

/** Returns the whole page, which a browser shows without any script. */
export function pageDocument(
  { filter, report: { node } }: PageModel,
  rendered: readonly PageSection[],
): string {
  const sections = rendered.map(({ id, html: content }) =>
    html`<section aria-labelledby="${id}-heading"><h2 id="${id}-heading">${
      SECTIONS[id]!.heading
    }</h2>
${id === "services" ? filterForm(filter) : ""}<div id="${id}">${raw(content)}</div></section>`
  );
  return frame(
    node.name,
    html`<noscript><meta http-equiv="refresh" content="${RELOAD_SECONDS}"></noscript>
<script src="page.js" type="module"></script>`,
    html`
      <a class="skip" href="#services-heading">Skip to the Services</a>
      <header>
        <h1>kube-relay <span>on ${node.name}</span></h1>
        <p id="connection" role="status">The state when the page was loaded</p>
      </header>
      <main>${sections}</main>
    `,
  );
}

/** Returns the page with one report, e.g. an explanation. */
export function reportDocument(node: string, title: string, report: Report): string {
  return frame(
    node,
    "",
    html`
      <header>
        <h1>${title} <span>on ${node}</span></h1>
        <p><a href="./">All of this node</a></p>
      </header>
      <main>
        <section>${paintHtml(report)}</section>
      </main>
    `,
  );
}

function frame(node: string, head: Html | "", body: Html): string {
  return String(html`
    <!DOCTYPE html>
    <html lang="en">
      <head><meta charset="utf-8">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <meta name="color-scheme" content="light dark">
    <title>kube-relay on ${node}</title>
    <link rel="stylesheet" href="page.css"><link rel="icon" href="icon.svg">
    ${head}</head>
      <body>${body}</body>
    </html>
  `);
}

function filterForm(filter: string): Html {
  return html`<form method="get" action="./">
<label for="filter">Only Services whose namespace/name begins with</label>
<input id="filter" name="filter" type="search" value="${filter}" spellcheck="false"
  autocomplete="off"><button type="submit">Show</button></form>`;
}

/** A script in the page replaces moments by ages. */
const time = (at: number) => new Date(at).toISOString();

function summary({ report, traffic = [] }: PageModel): Html {
  const { families, controllers: _, ...rest } = report;
  const { title, tone, rows } = statusAnswer({ ...rest, families }, { time, show: "problems" });
  const now = traffic.at(-1);
  const count = statusProblems(report, { time }).length;
  const ports = families.reduce((sum, { services }) => sum + services.length, 0);
  const tile = (value: string, name: string, tone = "") =>
    html`<li class="${tone}"><strong>${value}</strong> ${name}</li>`;
  return html`<ul class="tiles">
${tile(groupedText(ports), "ServicePorts")}
${
    tile(
      groupedText(count),
      count === 1 ? "problem" : "problems",
      count === 0 ? "good" : "attention",
    )
  }
${tile(now ? rateText(now.connections) : "–", "connections/s")}
${tile(now ? sizeText(Math.round(now.bytes)) : "–", "of traffic a second")}
</ul>${
    paintHtml({
      title: "",
      rows: [
        { cells: ["State", title], ...(tone && { tone }) },
        ...rows,
        ...families.flatMap((family) => [
          { cells: [family.family, `${family.mode}: ${family.summary}`] },
          ...loopRows(family, time),
        ]),
      ],
      parts: [],
    })
  }`;
}

function problems({ report, changes }: PageModel): Html {
  const drifts = changes.filter(({ kind }) => kind === "drift" || kind === "repair");
  const found = statusProblems(report, { time });
  const more = found.length - MOST_PROBLEMS;
  const rows: readonly Row[] = [
    ...found.slice(0, MOST_PROBLEMS),
    ...(more > 0
      ? [{ cells: ["", `and ${groupedText(more)} more; kube-relay status --problems lists all`] }]
      : []),
    ...drifts.slice(-MOST_DRIFTS).map((entry): Row => ({
      cells: [
        "drift",
        `${entry.at}, ${entry.family ?? ""}: ${entry.lines.map(({ text }) => text).join("; ")}`,
      ],
      tone: "warning",
    })),
  ];
  if (rows.length > 0) return paintHtml({ title: "", rows, parts: [] });
  const none = "Nothing is in quarantine, no sync fails, and no drift was seen.";
  return paintHtml({ title: "", rows: [{ cells: [none], tone: "good" }], parts: [] });
}

function traffic({ traffic: samples }: PageModel): Html {
  if (samples === undefined) {
    return html`<p>Not counted; <code>--service-counters</code> counts it.</p>`;
  }
  const series = (value: (rate: TrafficRate) => number) =>
    samples.map((rate) => ({ at: rate.at, value: value(rate) }));
  return html`${plot("Connections a second", series(({ connections }) => connections), rateText)}
${plot("Bytes a second", series(({ bytes }) => bytes), (bytes) => sizeText(Math.round(bytes)))}`;
}

function rateText(value: number): string {
  return value < 10 ? String(Math.round(value * 10) / 10) : groupedText(Math.round(value));
}

function syncPlot({ syncs }: PageModel): Html {
  const samples = syncs.map(({ at, durationMs, outcome }) => ({
    at,
    value: outcome === "failed" ? undefined : durationMs,
  }));
  return plot(countText(syncs.length, "sync"), samples, durationText);
}

/** Of a plot. */
const WIDTH = 720;
const HEIGHT = 140;
/** Room for the labels of the axes. */
const LEFT = 80;
const BOTTOM = 24;
const TOP = 12;
const RIGHT = 8;

/**
 * Draws values over time as SVG; `undefined` is a failure. A sentence has the same content for readers who
 * cannot see the plot.
 */
function plot(
  title: string,
  samples: readonly { readonly at: number; readonly value: number | undefined }[],
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
    <text class="axis" x="${LEFT}" y="${HEIGHT - 6}">${time(first.at).slice(11, 19)}</text>
    <text class="axis end" x="${WIDTH - RIGHT}" y="${HEIGHT - 6}">${time(last.at).slice(
      11,
      19,
    )} UTC</text>
      </svg>
      <figcaption>${words}</figcaption>
    </figure>
  `;
}

/** The path of a packet from this node. */
function explainPath(to: string): string {
  return `explain?${new URLSearchParams({ from: "node", to })}`;
}

function services({ report, filter }: PageModel): Html {
  const all = report.families.reduce((sum, { services }) => sum + services.length, 0);
  const shown = foremostServices(report, filter, MOST_SERVICES);
  const linkOf = (line: string, column: number, { cells }: Row) => {
    const [end = ""] = line.split(" ");
    const protocol = cells[0]?.split(" ")[1];
    if (column === 0 && protocol !== undefined) {
      return explainPath(end.includes(":") ? `${end}/${protocol}` : end);
    }
    return column === 3 && /:\d+$/.test(end) ? explainPath(`${end}/${protocol}`) : undefined;
  };
  const count = `${shown.length} of ${all}${filter === "" ? "" : `, filter “${filter}”`}`;
  if (shown.length === 0) return html`<p class="soft">ServicePorts: ${count}</p>`;
  return html`<p class="soft">ServicePorts: ${count}; those with problems first</p>
${paintHtml(serviceTable(shown), { linkOf })}`;
}

/** Empty where there is no other controller. */
function controllers({ report: { controllers = [] } }: PageModel): Html | "" {
  if (controllers.length === 0) return "";
  const parts = controllers.map((each) => controllerPart(each, time));
  return paintHtml({ title: "", rows: [], parts });
}

function changes({ changes }: PageModel): Html {
  const rows = changes.slice(-MOST_CHANGES).reverse().map((entry): Row => {
    const { at, family, tookMs, lines: [first, ...others] } = entry;
    const took = tookMs === undefined ? [] : [durationText(tookMs)];
    return {
      cells: [`${[at, family ?? [], took].flat().join(", ")}: ${first?.text}`],
      detail: others.map(({ text }) => text),
      ...(entry.lines.some(({ tone }) => tone === "bad") && { tone: "bad" }),
    };
  });
  const none = { cells: ["Nothing has changed since the start."] };
  return paintHtml({ title: "", rows: rows.length === 0 ? [none] : rows, parts: [] });
}

function doctor({ doctor: { at, findings } }: PageModel): Html {
  if (at === undefined) return html`<p>The machine is being checked&hellip;</p>`;
  const rows = findings.map(({ severity, summary, evidence, cure }): Row => ({
    cells: [severity, summary],
    ...(severity !== "info" && { tone: severity === "blocking" ? "bad" : "warning" }),
    detail: [...evidence, ...(cure === undefined ? [] : [`What to do: ${cure}`])],
  }));
  const none: Row = { cells: ["No findings."], tone: "good" };
  const report: Report = { title: "", rows: rows.length === 0 ? [none] : rows, parts: [] };
  return html`<p>Checked ${text(time(at))}; <code>kube-relay doctor</code> checks more.</p>
${paintHtml(report)}`;
}
