/** The status page as a document that a browser shows without any script. Pure. */
import { html, raw } from "hono/html";
import { type PageModel, pageSections } from "./page_sections.ts";

/** How often a browser without scripts loads the page again. */
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

/** Sections that scroll, and so need a name and the focus of the keyboard. */
const SCROLLING: Readonly<Record<string, string>> = {
  services: "Table of Services",
  changes: "List of changes",
};

/** The whole page. */
export function pageDocument(model: PageModel): string {
  const byId = new Map(pageSections(model).map(({ id, html }) => [id, html]));
  const { filter, report: { node } } = model;
  const section = ([id, heading]: [string, string]) =>
    html`<section aria-labelledby="${id}-heading"><h2 id="${id}-heading">${heading}</h2>
${id === "services" ? filterForm(filter) : ""}<div id="${id}" class="section"${
      SCROLLING[id]
        ? html`
          role="region" aria-label="${SCROLLING[id]}" tabindex="0"
        `
        : ""
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
          <p id="connection" role="status">The state when the page was loaded</p>
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
