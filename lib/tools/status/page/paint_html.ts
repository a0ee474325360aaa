/** Paints reports as HTML. Pure. All text goes through the templates of hono/html, which escape it. */
import { html } from "hono/html";
import { printableText } from "../../../log/printable_text.ts";
import type { Report, Row, Tone } from "../../report.ts";

/** The result of a template. */
export type Html = ReturnType<typeof html>;

interface PaintOptions {
  /** Returns the address of a link for a line of a column of a row. @default {no links} */
  readonly linkOf?: (line: string, column: number, row: Row) => string | undefined;
}

const CLASSES: Readonly<Partial<Record<Tone, string>>> = {
  good: "good",
  warning: "attention",
  bad: "attention",
  detail: "soft",
};

/** Paints the rows and parts below headings; the title of the report itself is the caller's. */
export function paintHtml({ columns, rows, parts }: Report, options: PaintOptions = {}): Html {
  const body = columns ? table(columns, rows, options) : facts(rows);
  return html`${body}${
    parts.map((part) =>
      html`${part.title === "" ? "" : html`<h3>${text(part.title)}</h3>`}${
        paintHtml(part, options)
      }`
    )
  }`;
}

/** Facts stand in one list, sentences between the lists. */
function facts(rows: readonly Row[]): readonly Html[] {
  const pieces: Html[] = [];
  for (let first = 0; first < rows.length;) {
    const isSentence = rows[first]!.cells.length === 1;
    let last = first;
    while (last < rows.length && (rows[last]!.cells.length === 1) === isSentence) last++;
    const part = rows.slice(first, last);
    pieces.push(isSentence ? html`${part.map(sentence)}` : html`<dl>${part.map(fact)}</dl>`);
    first = last;
  }
  return pieces;
}

function sentence({ cells, tone, detail }: Row): Html {
  return html`<p class="${classOf(tone)}">${text(cells[0]!)}</p>${details(detail)}`;
}

function fact({ cells, tone, detail }: Row): Html {
  return html`
    <div class="${classOf(tone)}">
      <dt>${printableText(cells.slice(0, -1).join(" "))}</dt>
      <dd>${text(cells.at(-1)!)}${details(detail)}</dd>
    </div>
  `;
}

function details(detail: readonly string[] = []): Html | "" {
  return detail.length === 0
    ? ""
    : html`<ul>${detail.map((line) => html`<li>${text(line)}</li>`)}</ul>`;
}

/** The details of the rows stand in a column of their own. */
function table(
  columns: readonly string[],
  rows: readonly Row[],
  { linkOf }: PaintOptions,
): Html {
  const hasDetails = rows.some(({ detail = [] }) => detail.length > 0);
  const headings = [...columns, ...(hasDetails ? ["SETTINGS"] : [])].map((heading) =>
    heading.charAt(0) + heading.slice(1).toLowerCase()
  );
  const cell = (row: Row, column: number) =>
    row.cells[column]!.split("\n").map((line) => {
      const link = linkOf?.(line, column, row);
      // A note in brackets is not a part of the link.
      const [name = "", ...notes] = line.split(/(?= \()/);
      return html`<div>${
        link === undefined
          ? text(line)
          : html`<a href="${link}">${printableText(name)}</a>${text(notes.join(""))}`
      }</div>`;
    });
  return html`
    <table>
      <thead>
        <tr>${headings.map((heading) => html`<th scope="col">${heading}</th>`)}</tr>
      </thead>
      <tbody>${rows.map((row) =>
        html`<tr class="${classOf(row.tone)}"><th scope="row">${cell(row, 0)}</th>${
          row.cells.slice(1).map((_, index) =>
            html`<td data-label="${headings[index + 1]}">${cell(row, index + 1)}</td>`
          )
        }${
          hasDetails
            ? html`<td data-label="Settings">${
              (row.detail ?? []).map((line) => html`<div>${printableText(line)}</div>`)
            }</td>`
            : ""
        }</tr>`
      )}</tbody>
    </table>
  `;
}

function classOf(tone: Tone | undefined): string {
  return tone === undefined ? "" : CLASSES[tone] ?? "";
}

const MOMENT = /(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z)/;

/** A text whose moments a script in the page replaces by ages. It is one line. */
export function text(value: string): Html {
  const pieces = printableText(value).split(MOMENT).map((piece, index) =>
    index % 2 === 0 ? piece : html`<time datetime="${piece}">${piece.slice(11, 19)} UTC</time>`
  );
  return html`${pieces}`;
}
