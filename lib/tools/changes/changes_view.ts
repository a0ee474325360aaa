/** The change log as text for a terminal, the newest entry last. Pure: the same log gives the same text. */
import { wrapText } from "../../config/wrap_text.ts";
import { printableText } from "../../log/printable_text.ts";
import { durationText, type TimeTexts, timeTexts } from "../status/number_texts.ts";
import { matchesFilter } from "../status/status_answer.ts";
import { type Line, painter, type TextLook } from "../report.ts";
import type { ChangeEntry, ChangesReport } from "./change_entry.ts";

interface ChangesViewOptions extends TextLook {
  /** Only entries that {@linkcode entryMatches} selects. */
  readonly filter?: string;
  /** Name of a time zone, e.g. `UTC`. @default {that of the machine} */
  readonly timeZone?: string | undefined;
}

const MIN_COLUMNS = 60;
/** Width of the time of day, family and duration before the text. */
const INDENT = 26;

/** The whole log, with a line for each day. */
export function renderChanges(report: ChangesReport, options: ChangesViewOptions): string {
  const { columns = 80, color = false, filter = "", timeZone } = options;
  const entries = report.entries.filter((entry) => entryMatches(entry, filter));
  if (entries.length === 0) {
    return filter === "" ? "No changes yet.\n" : `No change matches '${filter}'.\n`;
  }
  const times = timeTexts(timeZone);
  const lines: Line[] = [{ tone: "detail", text: "TIME      FAM       TOOK  CHANGE" }];
  let last: string | undefined;
  for (const entry of entries) {
    const day = times.day(entry.at);
    if (day !== last) lines.push({ tone: "title", text: day });
    last = day;
    lines.push(...entryLines(entry, { times, width: Math.max(MIN_COLUMNS, columns) }));
  }
  if (report.forgotten > 0) {
    lines.push({ tone: "detail", text: `Before these: ${report.forgotten} forgotten.` });
  }
  return lines.map(painter(color)).join("\n") + "\n";
}

/** Whether a filter selects an entry: by an object or a ServicePort in it, as {@linkcode matchesFilter}. */
export function entryMatches({ lines }: ChangeEntry, filter: string): boolean {
  return filter === "" ||
    lines.some(({ object, item }) =>
      [object, item].some((name) => name !== undefined && matchesFilter(name, filter))
    );
}

/**
 * An entry as lines of a width. The first one has time, family and duration before the text; others are
 * indented. `details: false` leaves out the lines of that tone.
 */
export function entryLines(
  entry: ChangeEntry,
  { times, width, details = true }: {
    readonly times: TimeTexts;
    readonly width: number;
    readonly details?: boolean;
  },
): readonly Line[] {
  const { at, family = "", tookMs } = entry;
  const took = tookMs === undefined ? "" : durationText(tookMs);
  const first = `${times.time(at)}  ${family.padEnd(4)}  ${took.padStart(8)}`;
  return entry.lines.filter(({ tone }) => details || tone !== "detail")
    .flatMap(({ tone, text }) =>
      brokenText(printableText(text), width - INDENT).map((piece) => ({ tone, text: piece }))
    ).map(({ tone, text }, index) => ({
      tone,
      text: (index === 0 ? first : "").padEnd(INDENT) + text,
    }));
}

/** Indents the lines after the first, and cuts a word that is too long. */
function brokenText(text: string, width: number): readonly string[] {
  const lines = wrapText(text, { width: width - 2 }).split("\n")
    .flatMap((line) => line.match(new RegExp(`.{1,${width - 2}}`, "gu")) ?? [""]);
  return lines.map((line, index) => index === 0 ? line : `  ${line}`);
}
