/**
 * The status page as a document that a browser shows without any script. Pure.
 *
 * @module
 */
import { html, raw } from "hono/html";
import type { PageModel } from "./page_model.ts";
import { pageSections } from "./page_sections.ts";

/** So often a browser without scripts asks again. */
const RELOAD_SECONDS = 10;

/** Headings of the sections; their ids are those of {@linkcode pageSections}. */
const HEADINGS: Readonly<Record<string, string>> = {
  summary: "This node",
  trouble: "Quarantine, failures and drift",
  syncs: "Syncs",
  services: "Services",
  changes: "Last changes",
  doctor: "Doctor’s findings",
};

/** The whole page. */
export function pageDocument(model: PageModel): string {
  const byId = new Map(pageSections(model).map(({ id, html }) => [id, html]));
  const { filter, report: { node } } = model;
  const section = ([id, heading]: [string, string]) =>
    html`<section aria-labelledby="${id}-heading"><h2 id="${id}-heading">${heading}</h2>
${id === "services" ? filterForm(filter) : ""}<div id="${id}" class="section"${
      id === "services" ? raw(` role="region" aria-label="Table of Services" tabindex="0"`) : ""
    }>${raw(byId.get(id) ?? "")}</div></section>`;
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
          <p id="connection" role="status">Shown as it was when the page was loaded</p>
        </header>
        <main>
    ${Object.entries(HEADINGS).map(section)}
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
