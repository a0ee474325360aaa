/**
 * The parts of the status page, as HTML. Pure. All text goes through the templates of hono/html, which
 * escape it: a manifest may hold any.
 *
 * @module
 */
import { html } from "hono/html";
import { formatHostPort } from "../../../net/port.ts";
import type { HostFinding } from "../../../proxy/host_checks.ts";
import { matchesFilter } from "../status_view.ts";
import type { StatusFamily, StatusReport, StatusService } from "../status_report.ts";
import { trafficText } from "../traffic_text.ts";
import type { PageChange, PageModel, PageSection } from "./page_model.ts";
import { clockText, type Html, syncPlot } from "./sync_plot.ts";

/** Rows of the table of Services; more would make each update megabytes. */
const MOST_SERVICES = 200;
const MOST_ENDPOINTS = 6;
const MOST_CHANGES = 50;

const SECTIONS: Readonly<Record<string, (model: PageModel) => Html>> = {
  summary,
  syncs: ({ syncs }) => syncPlot(syncs),
  trouble,
  services: serviceTable,
  changes: ({ changes }) => changeList(changes),
  doctor,
};

/** All sections, in the order of the page. */
export function pageSections(model: PageModel): readonly PageSection[] {
  return Object.entries(SECTIONS).map(([id, render]) => ({ id, html: String(render(model)) }));
}

function summary({ report }: PageModel): Html {
  const { node, phase, version, pid, startedAt } = report;
  const zone = node.zone === undefined ? "" : `, zone ${node.zone}`;
  return html`<dl>
${
    fact(
      "State",
      html`<strong class="${phase === "serving" ? "good" : "attention"}">${phase}</strong>`,
    )
  }
${fact("Node", `${node.name}${zone}`)}
${fact("Version", `kube-relay ${version}, process ${pid}`)}
${fact("Since", time(Date.parse(startedAt)))}
${report.families.map((family) => fact(family.family, familyText(family)))}
${report.sources.map(({ name, state }) => fact("Source", `${name}: ${state}`))}
</dl>`;
}

function fact(name: string, value: Html | string): Html {
  return html`
    <div>
      <dt>${name}</dt>
      <dd>${value}</dd>
    </div>
  `;
}

function familyText({ mode, summary, lastSync, pending }: StatusFamily): Html {
  const sync = lastSync === undefined
    ? "no sync yet"
    : html`last sync ${time(Date.parse(lastSync.at))} in ${lastSync.durationMs} ms`;
  return html`${mode}: ${summary}; ${sync}${pending ? ", changes wait" : ""}`;
}

/** `14:03:22 UTC`; a script in the page adds how long ago that is. */
function time(at: number): Html {
  return html`<time datetime="${new Date(at).toISOString()}">${clockText(at)} UTC</time>`;
}

function trouble({ report, changes }: PageModel): Html {
  const drift = changes.filter(({ attention }) => attention === "drift");
  const items = [
    ...report.families.flatMap(familyTrouble),
    ...report.sources.flatMap(({ name, problems }) =>
      problems.map((problem) => html`<li>Source ${name}: ${problem}</li>`)
    ),
    ...refusedSettings(report),
    ...drift.slice(-MOST_ENDPOINTS).map(({ at, cause, effect }) =>
      html`<li>Drift, ${time(at)}: ${cause}: ${effect}</li>`
    ),
  ];
  if (items.length === 0) {
    return html`<p class="good">Nothing is in quarantine, no sync fails, and no drift was seen.</p>`;
  }
  return html`<ul class="attention">${items}</ul>`;
}

function familyTrouble({ family, failures, lastError, quarantined }: StatusFamily): Html[] {
  const failing = failures === 0
    ? []
    : [html`<li>${family}: ${failures} failed since the last good sync: ${lastError ?? ""}</li>`];
  return [
    ...failing,
    ...quarantined.slice(0, MOST_SERVICES).map(({ key, address, reason }) =>
      html`<li>In quarantine: ${key}${
        address === undefined ? "" : ` at ${address}`
      }: ${reason}</li>`
    ),
  ];
}

function refusedSettings({ hostSettings }: StatusReport): readonly Html[] {
  return hostSettings.filter(({ state }) => state === "refused").map((setting) => {
    const { name, wanted, found = "unknown", reason = "refused", cure } = setting;
    return html`<li>Kernel setting ${name} is ${found}, not ${wanted}: ${reason}${
      cure === undefined ? "" : html`; <code>${cure}</code>`
    }</li>`;
  });
}

function serviceTable({ report, filter }: PageModel): Html {
  const all = report.families.flatMap(({ services, family }) =>
    services.map((service) => ({ family, service }))
  );
  const wanted = all.filter(({ service }) => matchesFilter(service, filter));
  const shown = wanted.toSorted((a, b) => compare(a.service, b.service)).slice(0, MOST_SERVICES);
  const counted = shown.some(({ service }) => service.traffic !== undefined);
  const count = `${shown.length} of ${all.length}${filter === "" ? "" : `, filter “${filter}”`}`;
  return html`
    <table>
      <caption>ServicePorts: ${count}; those with trouble first</caption>
      <thead>
        <tr><th scope="col">Service</th><th scope="col">Health</th><th scope="col">Addresses</th>
    <th scope="col">Endpoints</th>${counted ? html`<th scope="col">Traffic</th>` : ""}</tr>
      </thead>
      <tbody>${shown.map(({ service }) => serviceRow(service, counted))}</tbody>
    </table>
  `;
}

function serviceRow(service: StatusService, counted: boolean): Html {
  const { name, protocol, addresses, traffic, connections } = service;
  const open = connections === undefined ? "" : `${connections} open`;
  return html`<tr><th scope="row">${name} <span>${protocol}</span></th>
<td class="${gravity(service) > 0 ? "attention" : "good"}">${healthText(service)}</td>
<td>${
    addresses.map(({ role, address, port, state }) =>
      html`<div>${formatHostPort(address, port)}${role === "ClusterIP" ? "" : ` ${role}`}${
        state === "serving" ? "" : ` (${state})`
      }</div>`
    )
  }</td>
<td>${endpointLines(service)}</td>${
    counted ? html`<td>${open} ${traffic === undefined ? "" : trafficText(traffic)}</td>` : ""
  }</tr>`;
}

function endpointLines({ endpoints }: StatusService): readonly Html[] {
  const more = endpoints.length - MOST_ENDPOINTS;
  return [
    ...endpoints.slice(0, MOST_ENDPOINTS).map(({ address, state, local }) =>
      html`<div>${address}${state === "ready" ? "" : ` (${state})`}${local ? " (local)" : ""}</div>`
    ),
    ...(more > 0 ? [html`<div>and ${more} more</div>`] : []),
  ];
}

function healthText(service: StatusService): string {
  const ready = service.endpoints.filter(({ state }) => state === "ready").length;
  if (service.quarantined !== undefined) return `in quarantine: ${service.quarantined}`;
  if (service.endpoints.length === 0) return "no endpoints: refused";
  return `${ready} of ${service.endpoints.length} ready`;
}

/** 0 = all is well. */
function gravity({ quarantined, endpoints }: StatusService): number {
  if (quarantined !== undefined) return 3;
  const ready = endpoints.filter(({ state }) => state === "ready").length;
  if (ready === 0) return 2;
  return ready < endpoints.length ? 1 : 0;
}

function compare(a: StatusService, b: StatusService): number {
  const traffic = (b.traffic?.opened ?? 0) - (a.traffic?.opened ?? 0);
  return gravity(b) - gravity(a) || traffic || (a.name < b.name ? -1 : Number(a.name > b.name));
}

function changeList(changes: readonly PageChange[]): Html {
  if (changes.length === 0) return html`<p>Nothing has changed since the start.</p>`;
  return html`<ol>${
    changes.slice(-MOST_CHANGES).reverse().map(({ at, cause, effect, attention }) =>
      html`<li class="${attention === undefined ? "" : "attention"}">${time(at)} ${
        attention === undefined ? "" : html`
          <strong>${attention}</strong>
        `
      }${cause}<br><span>${effect}</span></li>`
    )
  }</ol>`;
}

function doctor({ doctor: { at, findings } }: PageModel): Html {
  if (at === undefined) return html`<p>The machine is being checked …</p>`;
  const when = html`<p>Looked at ${time(at)}; <code>kube-relay doctor</code> looks at more.</p>`;
  if (findings.length === 0) return html`<p class="good">No findings.</p>${when}`;
  return html`${when}<ul>${findings.map(finding)}</ul>`;
}

function finding({ severity, summary, evidence, cure }: HostFinding): Html {
  return html`
    <li
      class="${severity === "info"
        ? ""
        : "attention"}"><strong>${severity}</strong>: ${summary}<details id="${`finding-${summary}`
        .replace(/\W+/g, "-")}"><summary>Where it was seen</summary><ul>${evidence.map((line) =>
          html`<li>${line}</li>`
        )}</ul></details>${cure === undefined ? "" : html`<p>What to do: ${cure}</p>`}</li>
  `;
}
