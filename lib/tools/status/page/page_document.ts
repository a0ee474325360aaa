/**
 * The status page and its parts as HTML. Pure. All text goes through the templates of hono/html, which
 * escape it: a manifest may hold any.
 */
import { html, raw } from "hono/html";
import type { HostFinding } from "../../../proxy/host_checks.ts";
import type { ChangeEntry, SyncTime } from "../../changes/change_entry.ts";
import { durationText } from "../number_texts.ts";
import type { StatusReport } from "../status_report.ts";
import {
  type ControllerView,
  type FamilyView,
  foremostServices,
  type ServiceView,
  type StatusView,
  statusView,
} from "../status_view.ts";
import type { Tone } from "../../cli/terminal_text.ts";
import { clockText, type Html, syncPlot } from "./sync_plot.ts";

/** The content of the page at one time. */
export interface PageModel {
  readonly report: StatusReport;
  /** The filter of the reader, as for `status --filter`. */
  readonly filter: string;
  /** Oldest first. */
  readonly syncs: readonly SyncTime[];
  /** Oldest first. */
  readonly changes: readonly ChangeEntry[];
  readonly doctor: PageFindings;
}

/** Problems of this machine, found by the checks of `doctor`. */
export interface PageFindings {
  /** The time of the checks, in milliseconds since 1970; absent during the first check. */
  readonly at?: number;
  readonly findings: readonly HostFinding[];
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
const MOST_DRIFTS = 6;
const MOST_CHANGES = 50;

/** Parts of the page by id, in its order. A `label`: the part scrolls, so it needs the keyboard focus and a name. */
const SECTIONS: Readonly<
  Record<string, {
    readonly heading: string;
    readonly label?: string;
    readonly render: (model: PageModel, view: StatusView) => Html;
  }>
> = {
  summary: { heading: "This node", render: summary },
  trouble: { heading: "Quarantine, failures and drift", render: trouble },
  controllers: { heading: "Other controllers", render: otherControllers },
  syncs: { heading: "Syncs", render: ({ syncs }) => syncPlot(syncs) },
  services: { heading: "Services", label: "Table of Services", render: serviceTable },
  changes: {
    heading: "Last changes",
    label: "List of changes",
    render: ({ changes }) => changeList(changes),
  },
  doctor: { heading: "Doctor’s findings", render: doctor },
};

/** Returns all sections, in the order of the page. */
export function pageSections(model: PageModel): readonly PageSection[] {
  const view = statusView(model.report);
  return Object.entries(SECTIONS)
    .map(([id, { render }]) => ({ id, html: String(render(model, view)) }))
    .filter(({ html }) => html !== "");
}

/** Returns the whole page, which a browser shows without any script. */
export function pageDocument(model: PageModel): string {
  const { filter, report: { node } } = model;
  const section = ({ id, html: content }: PageSection) => {
    const { heading, label } = SECTIONS[id]!;
    return html`<section aria-labelledby="${id}-heading"><h2 id="${id}-heading">${heading}</h2>
${id === "services" ? filterForm(filter) : ""}<div id="${id}" class="section"${
      label
        ? html`
          role="region" aria-label="${label}" tabindex="0"
        `
        : ""
    }>${raw(content)}</div></section>`;
  };
  return String(html`
    <!DOCTYPE html>
    <html lang="en">
      <head>
        <meta charset="utf-8">
        <meta name="viewport" content="width=device-width, initial-scale=1">
        <meta name="color-scheme" content="light dark">
        <title>kube-relay on ${node.name}</title>
        <link rel="stylesheet" href="page.css">
        <link rel="icon" href="icon.svg">
        <noscript><meta http-equiv="refresh" content="${RELOAD_SECONDS}"></noscript>
        <script src="page.js" type="module"></script>
      </head>
      <body>
        <a class="skip" href="#services-heading">Skip to the Services</a>
        <header>
          <h1>kube-relay <span>on ${node.name}</span></h1>
          <p id="connection" role="status">The state when the page was loaded</p>
        </header>
        <main>
    ${pageSections(model).map(section)}
        </main>
      </body>
    </html>
  `);
}

function filterForm(filter: string) {
  return html`
    <form method="get" action="./">
      <label for="filter">Only Services whose namespace/name begins with</label>
      <input id="filter" name="filter" type="search" value="${filter}" spellcheck="false"
        autocomplete="off">
      <button type="submit">Show</button>
    </form>
  `;
}

const CLASSES: Readonly<Partial<Record<Tone, string>>> = {
  good: "good",
  warning: "attention",
  bad: "attention",
};

function classOf(tone: Tone): string {
  return CLASSES[tone] ?? "";
}

function summary(_: PageModel, view: StatusView): Html {
  const { program, process, phase, node, startedAt, controllers, sources } = view;
  return html`<dl>
${fact("State", html`<strong class="${classOf(phase.tone)}">${phase.text}</strong>`)}
${fact("Node", node)}
${fact("Version", `${program}, ${process}`)}
${fact("Since", time(startedAt))}
${controllers.filter(({ name }) => name === undefined).map(familyFacts)}
${sources.map(({ text }) => fact("Source", text))}
</dl>`;
}

function familyFacts({ families }: ControllerView): readonly Html[] {
  return families.map((family) => fact(family.name, familyText(family)));
}

/** Empty where there is no other controller; the section is then left out. */
function otherControllers(_: PageModel, { controllers }: StatusView): Html {
  const others = controllers.filter(({ name }) => name !== undefined);
  return html`${
    others.map((controller) =>
      html`
        <h3>${controller.name}</h3>
        <dl>${controller.facts.map(({ name, text }) => fact(name, text))}${familyFacts(
          controller,
        )}</dl>
      `
    )
  }`;
}

function fact(name: string, value: Html | string): Html {
  return html`
    <div>
      <dt>${name}</dt>
      <dd>${value}</dd>
    </div>
  `;
}

function familyText({ dataPlane, lastSync, notes }: FamilyView): Html {
  const sync = lastSync &&
    html`last sync ${time(lastSync.at)} in ${lastSync.duration}`;
  const noted = notes.map(({ text }) => text).join(", ");
  return html`${dataPlane}; ${sync ?? ""}${sync && noted !== "" ? ", " : ""}${noted}`;
}

/** `14:03:22 UTC`; a script in the page replaces it by the age. */
function time(at: number): Html {
  return html`<time datetime="${new Date(at).toISOString()}">${clockText(at)} UTC</time>`;
}

function trouble({ changes }: PageModel, { controllers, sources, settings }: StatusView): Html {
  const drifts = changes.filter(({ kind }) => kind === "drift" || kind === "repair");
  const items = [
    ...controllers.flatMap(({ families }) => families).flatMap(familyTrouble),
    ...sources.flatMap(({ text, problems }) =>
      problems.map((problem) => html`<li>Source ${text}: ${problem}</li>`)
    ),
    ...settings.map(({ text, command }) =>
      html`<li>Kernel setting ${text}${command ? html`; <code>${command}</code>` : ""}</li>`
    ),
    ...drifts.slice(-MOST_DRIFTS).map((entry) =>
      html`<li>${time(Date.parse(entry.at))}, ${entry.family ?? ""}: ${
        entry.lines.map(({ text }) => text).join("; ")
      }</li>`
    ),
  ];
  if (items.length === 0) {
    return html`<p class="good">Nothing is in quarantine, no sync fails, and no drift was seen.</p>`;
  }
  return html`<ul class="attention">${items}</ul>`;
}

function familyTrouble({ title, notes, error, quarantine }: FamilyView): readonly Html[] {
  return [
    ...notes.filter(({ tone }) => tone === "bad").map(({ text }) =>
      html`<li>${title}: ${text}: ${error ?? ""}</li>`
    ),
    ...quarantine.slice(0, MOST_SERVICES).map(({ text, retryAt }) =>
      html`<li>In quarantine: ${text}; tried again ${
        retryAt === undefined ? "at each sync" : time(retryAt)
      }</li>`
    ),
  ];
}

function serviceTable({ report, filter }: PageModel): Html {
  const { shown, all } = foremostServices(report, { filter, most: MOST_SERVICES });
  const isCounted = shown.some(({ traffic }) => traffic !== undefined);
  const count = `${shown.length} of ${all}${filter === "" ? "" : `, filter “${filter}”`}`;
  return html`
    <table>
      <caption>ServicePorts: ${count}; those with trouble first</caption>
      <thead>
        <tr><th scope="col">Service</th><th scope="col">Health</th><th scope="col">Addresses</th>
    <th scope="col">Endpoints</th>${isCounted ? html`<th scope="col">Traffic</th>` : ""}</tr>
      </thead>
      <tbody>${shown.map((service) => serviceRow(service, isCounted))}</tbody>
    </table>
  `;
}

function serviceRow(service: ServiceView, isCounted: boolean): Html {
  const { name, protocol, health, addresses, endpoints, traffic = [] } = service;
  return html`<tr><th scope="row">${name} <span>${protocol}</span></th>
<td class="${classOf(health.tone)}">${health.text}</td>
<td>${addresses.map((text) => html`<div>${text}</div>`)}</td>
<td>${endpoints.map((text) => html`<div>${text}</div>`)}</td>${
    isCounted ? html`<td>${traffic.join(", ")}</td>` : ""
  }</tr>`;
}

function changeList(changes: readonly ChangeEntry[]): Html {
  if (changes.length === 0) return html`<p>Nothing has changed since the start.</p>`;
  return html`<ol>${changes.slice(-MOST_CHANGES).reverse().map(changeItem)}</ol>`;
}

function changeItem(entry: ChangeEntry): Html {
  const { family = "", tookMs } = entry;
  const head = [family, tookMs === undefined ? "" : durationText(tookMs)]
    .filter((text) => text !== "");
  return html`<li>${time(Date.parse(entry.at))} ${head.join(", ")}${
    entry.lines.map(({ tone, text }) =>
      tone === "detail"
        ? html`<div><span>${text}</span></div>`
        : html`<div class="${classOf(tone ?? "plain")}">${text}</div>`
    )
  }</li>`;
}

function doctor({ doctor: { at, findings } }: PageModel): Html {
  if (at === undefined) return html`<p>The machine is being checked&hellip;</p>`;
  const when = html`<p>Checked ${time(at)}; <code>kube-relay doctor</code> checks more.</p>`;
  if (findings.length === 0) return html`<p class="good">No findings.</p>${when}`;
  return html`${when}<ul>${findings.map(finding)}</ul>`;
}

function finding({ severity, summary, evidence, cure }: HostFinding): Html {
  return html`
    <li
      class="${severity === "info"
        ? ""
        : "attention"}"><strong>${severity}</strong>: ${summary}<details id="${`finding-${summary}`
        .replace(/\W+/g, "-")}"><summary>Evidence</summary><ul>${evidence.map((line) =>
          html`<li>${line}</li>`
        )}</ul></details>${cure === undefined ? "" : html`<p>What to do: ${cure}</p>`}</li>
  `;
}
