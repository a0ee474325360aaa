/** The change log as a report. Pure: the same log gives the same report. */
import type { Report, Row } from "../report.ts";
import { durationText, type TimeTexts, timeTexts } from "../status/number_texts.ts";
import { matchesFilter } from "../status/status_answer.ts";
import type { ChangeEntry, ChangesReport } from "./change_entry.ts";

/** The entries that a filter selects, the newest last, with a line for each day. */
export function changesReport(
  { entries, forgotten }: ChangesReport,
  { filter = "", timeZone }: {
    readonly filter?: string;
    /** Name of a time zone, e.g. `UTC`. @default {that of the machine} */
    readonly timeZone?: string;
  } = {},
): Report {
  const times = timeTexts(timeZone);
  const rows: Row[] = [rowOf(["TIME", "FAM", "TOOK"], { text: "CHANGE", tone: "detail" })];
  let last: string | undefined;
  for (const entry of entries.filter((entry) => entryMatches(entry, filter))) {
    const day = times.day(entry.at);
    if (day !== last) rows.push({ cells: [day], tone: "title" });
    last = day;
    rows.push(...entryRows(entry, times));
  }
  if (last === undefined) {
    const none = filter === "" ? "No changes yet." : `No change matches '${filter}'.`;
    return { title: "", rows: [{ cells: [none] }], parts: [] };
  }
  if (forgotten > 0) {
    rows.push({ cells: [`Before these: ${forgotten} forgotten.`], tone: "detail" });
  }
  return { title: "", rows, parts: [] };
}

/** Whether a filter selects an entry: by an object or a ServicePort in it, as {@linkcode matchesFilter}. */
export function entryMatches({ lines }: ChangeEntry, filter: string): boolean {
  return filter === "" ||
    lines.some(({ object, item }) =>
      [object, item].some((name) => name !== undefined && matchesFilter(name, filter))
    );
}

/** The lines of an entry: time, family and duration before the first one, blanks before the others. */
export function entryRows(
  { at, family, tookMs, lines }: ChangeEntry,
  times: TimeTexts,
): readonly Row[] {
  const took = tookMs === undefined ? "" : durationText(tookMs);
  return lines.map((line, index) =>
    rowOf(index === 0 ? [times.time(at), family ?? "", took] : [], line)
  );
}

function rowOf(
  [time = "", family = "", took = ""]: readonly string[],
  { text, tone }: Pick<ChangeEntry["lines"][number], "text" | "tone">,
): Row {
  const cells = [time.padEnd(8), family.padEnd(4), took.padStart(8), text];
  return tone === undefined ? { cells } : { cells, tone };
}
