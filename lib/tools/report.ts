/**
 * The one form in which tools answer, and how a terminal shows it. The live view and the status page
 * paint the same reports. Pure: the same report gives the same text.
 */
import { wrapText } from "../config/wrap_text.ts";
import { printableText } from "../log/printable_text.ts";

/** What a row means. A terminal shows it as a color, the status page as a class. */
export type Tone = "good" | "warning" | "bad" | "effect" | "detail" | "title";

/** A titled list of facts or a table, with further parts below. */
export interface Report {
  /** Empty where nothing stands above the rows. */
  readonly title: string;
  readonly tone?: Tone;
  /** The headings of a table. Without them, each row is a fact: its labels, then its text. */
  readonly columns?: readonly string[];
  readonly rows: readonly Row[];
  readonly parts: readonly Report[];
}

/** A row of a table, a fact, or with a single cell a sentence. */
export interface Row {
  /** Each line of a cell of a table is a line of its own. */
  readonly cells: readonly string[];
  readonly tone?: Tone;
  /** Lines below the row. A list of facts shows them below the text of the row. */
  readonly detail?: readonly string[];
}

/** A row that is a sentence; `text` has no full stop. */
export function sentence(text: string, tone: Tone): Row {
  return { cells: [`${text}.`], tone };
}

/** One line of a terminal. */
export interface Line {
  readonly text: string;
  readonly tone: Tone | undefined;
}

/** The width and the colors of a terminal. */
export interface TextLook {
  /** @default {80} */
  readonly columns?: number;
  /** @default {false} */
  readonly color?: boolean;
}

/** Narrowest table that can still be read. */
const MIN_WIDTH = 60;
/** Widest line of prose. Tables and lists of facts use the whole terminal. */
const MAX_PROSE = 120;
/** Blanks between two columns. */
const GAP = 2;
/** Most lines below a row: a Service with 1,000 endpoints has a map element for each. */
const MAX_DETAIL = 40;

/** Paints a report for a terminal. */
export function paintText(report: Report, { columns = 80, color = false }: TextLook = {}): string {
  const paint = painter(color);
  return reportLines(report, columns).map((line) => `${paint(line)}\n`).join("");
}

/** Select Graphic Rendition (ECMA-48): what begins a tone, and what ends it. */
const COLORS: Readonly<Record<Tone, readonly [begin: number, end: number]>> = {
  good: [32, 39],
  warning: [33, 39],
  bad: [31, 39],
  effect: [36, 39],
  detail: [2, 22],
  title: [1, 22],
};

/** Returns the function that colors a line. */
export function painter(color: boolean): (line: Line) => string {
  return ({ text, tone }) => {
    if (!color || tone === undefined || text === "") return text;
    const [begin, end] = COLORS[tone];
    return `\x1b[${begin}m${text}\x1b[${end}m`;
  };
}

/** Swaps the colors of a text and its background. */
export function inverse(text: string): string {
  return `\x1b[7m${text}\x1b[27m`;
}

/** Returns the lines of a report. Words longer than a line stay whole, except in tables. */
export function reportLines(report: Report, columns: number): readonly Line[] {
  const lines: Line[] = [];
  addReport(lines, report, Math.max(MIN_WIDTH, columns));
  return lines;
}

function addReport(
  lines: Line[],
  { title, tone = "title", columns, rows, parts }: Report,
  width: number,
  isPart = false,
): void {
  const indent = isPart && title !== "" ? 2 : 0;
  if (title !== "") lines.push(...hanging("", title, tone, { width, hang: 2 }));
  if (columns) addTable(lines, [{ cells: columns, tone: "detail" }, ...rows], width, indent);
  else addFacts(lines, rows, width, indent);
  for (const part of parts) {
    if (lines.length > 0) lines.push({ text: "", tone: undefined });
    addReport(lines, part, width, true);
  }
}

/** The texts of all rows begin in one column. */
function addFacts(lines: Line[], rows: readonly Row[], width: number, indent: number): void {
  const widths = widthsOf(rows.map(({ cells }) => cells.slice(0, -1)));
  for (const { cells, tone, detail } of rows) {
    const labels = cells.slice(0, -1).map((label, index) => label.padEnd(widths[index]! + GAP));
    const head = " ".repeat(indent) + printableText(labels.join(""));
    const hang = head.length + (labels.length === 0 ? 2 : 0);
    const most = labels.length === 0 ? Math.min(MAX_PROSE, width) : width;
    lines.push(...hanging(head, cells.at(-1) ?? "", tone, { width: most, hang }));
    addDetail(lines, detail, most, head.length + 2);
  }
}

function addDetail(
  lines: Line[],
  detail: readonly string[] = [],
  width: number,
  indent: number,
): void {
  const most = detail.length > MAX_DETAIL + 1 ? MAX_DETAIL : detail.length;
  const more = most < detail.length ? [`and ${detail.length - most} more; --json has all`] : [];
  for (const text of [...detail.slice(0, most), ...more]) {
    lines.push(...hanging(" ".repeat(indent), text, undefined, { width, hang: indent + 2 }));
  }
}

/** Wraps a text behind a head; `hang` is the indent of the lines after the first. */
function hanging(
  head: string,
  text: string,
  tone: Tone | undefined,
  { width, hang }: { readonly width: number; readonly hang: number },
): readonly Line[] {
  const plain = printableText(text);
  if (head.length + plain.length <= width) return [{ text: (head + plain).trimEnd(), tone }];
  const lines: string[] = [];
  let [line, isEmpty] = [head, true];
  for (const word of plain.split(/\s+/)) {
    if (!isEmpty && line.length + 1 + word.length > width) {
      lines.push(line);
      line = " ".repeat(hang) + word;
    } else line += isEmpty ? word : ` ${word}`;
    isEmpty = false;
  }
  return [...lines, line].map((text) => ({ text, tone }));
}

/** Not by cli-table3, which takes two seconds for 10,000 rows. */
function addTable(lines: Line[], rows: readonly Row[], width: number, indent: number): void {
  const cells = rows.map((row) => row.cells.map((cell) => cell.split("\n").map(printableText)));
  const widths = fitted(cells, width - indent);
  const room = widths.reduce((rest, each) => rest - GAP - each, width - indent + GAP);
  const last = widths.length - 1;
  // On a wide terminal, the lines of the last column stand beside each other.
  const isWide = width > MAX_PROSE && room > 0;
  if (isWide) widths[last]! += room;
  for (const [index, { tone, detail }] of rows.entries()) {
    const fit = cells[index]!.map((lines, column) => {
      const shown = isWide && column === last ? besideEachOther(lines, widths[last]!) : lines;
      return shown.flatMap(fitLine(widths[column]!));
    });
    const height = fit.reduce((most, { length }) => Math.max(most, length), 0);
    for (let line = 0; line < height; line++) {
      const text = fit.map((texts, column) => (texts[line] ?? "").padEnd(widths[column]! + GAP));
      lines.push({ text: (" ".repeat(indent) + text.join("")).trimEnd(), tone });
    }
    addDetail(lines, detail, width, indent + 2);
  }
}

function besideEachOther(lines: readonly string[], width: number): readonly string[] {
  const packed: string[] = [];
  for (const line of lines) {
    const before = packed.at(-1);
    const both = `${before}${" ".repeat(GAP)}${line}`;
    if (before !== undefined && both.length <= width) packed[packed.length - 1] = both;
    else packed.push(line);
  }
  return packed;
}

/** The width of the longest line in each column. */
function widthsOf(rows: readonly (readonly (string | readonly string[])[])[]): number[] {
  const widths: number[] = [];
  for (const row of rows) {
    for (const [column, cell] of row.entries()) {
      for (const { length } of typeof cell === "string" ? [cell] : cell) {
        if (length > (widths[column] ?? 0)) widths[column] = length;
        else widths[column] ??= 0;
      }
    }
  }
  return widths;
}

/** Where the columns do not fit, the widest one shrinks first, to its longest word before words break. */
function fitted(rows: readonly (readonly (readonly string[])[])[], width: number): number[] {
  const widths = widthsOf(rows);
  let excess = widths.reduce((sum, each) => sum + GAP + each, -GAP) - width;
  if (excess <= 0) return widths;
  const words = widthsOf(
    rows.map((row) => row.map((lines) => lines.flatMap((line) => line.split(/\s+/)))),
  );
  for (const least of [words, words.map(() => 1)]) {
    while (excess > 0) {
      const room = widths.map((each, column) => each > least[column]! ? each : 0);
      const widest = Math.max(...room);
      if (widest === 0) break;
      widths[room.indexOf(widest)]! -= 1;
      excess--;
    }
  }
  return widths;
}

/** Breaks at blanks, and too long words anywhere. */
function fitLine(width: number): (line: string) => readonly string[] {
  return (line) =>
    line.length <= width ? [line] : wrapText(line, width).split("\n")
      .flatMap((part) => part.match(new RegExp(`.{1,${width}}`, "gu")) ?? [""]);
}
