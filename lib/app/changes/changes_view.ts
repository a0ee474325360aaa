/**
 * The change log as text for people, the newest last. Pure: the same log gives the same text.
 *
 * @module
 */
import { createColors } from "picocolors";
import { wrapText } from "../../config/wrap_text.ts";
import type { ChangeEntry, ChangesReport } from "./change_entry.ts";
import { entryDuration, entryLines, type LineTone } from "./entry_text.ts";

/** How the text looks. */
interface ChangesViewOptions {
  /** Width of the terminal. @default {80} */
  readonly columns?: number;
  /** @default {false} */
  readonly color?: boolean;
  /** Only entries that {@linkcode entryMatches} says. */
  readonly filter?: string;
  /** Name of a time zone, e.g. `UTC`. @default {that of the machine} */
  readonly timeZone?: string | undefined;
}

type Colors = ReturnType<typeof createColors>;

const MIN_COLUMNS = 60;
/** Time of day, family and duration stand before the text. */
const INDENT = 26;

/** Formats one moment. */
interface TimeTexts {
  readonly day: (at: string) => string;
  readonly time: (at: string) => string;
}

/** The whole log, with a line for each day. */
export function renderChanges(report: ChangesReport, options: ChangesViewOptions): string {
  const { columns = 80, color = false, filter = "", timeZone } = options;
  const entries = report.entries.filter((entry) => entryMatches(entry, filter));
  if (entries.length === 0) {
    return filter === "" ? "No changes yet.\n" : `No change matches '${filter}'.\n`;
  }
  const colors = createColors(color);
  const times = timeTexts(timeZone);
  const lines = [colors.dim("TIME      FAM       TOOK  CHANGE")];
  let day: string | undefined;
  for (const entry of entries) {
    const its = times.day(entry.at);
    if (its !== day) lines.push(colors.bold(its));
    day = its;
    lines.push(...entryRows(entry, { times, colors, width: Math.max(MIN_COLUMNS, columns) }));
  }
  if (report.forgotten > 0) lines.push(colors.dim(`Before these: ${report.forgotten} forgotten.`));
  return `${lines.join("\n")}\n`;
}

/** Whether an entry concerns what a filter names: the start of `namespace/name`, or a whole word of it. */
export function entryMatches(entry: ChangeEntry, filter: string): boolean {
  if (filter === "") return true;
  const names = entry.kind === "sync"
    ? [...entry.causes.map(({ name }) => name), ...entry.effects.map((each) => each.servicePort)]
    : entry.kind === "quarantine"
    ? [entry.servicePort]
    : [];
  return names.some((name) => name.startsWith(filter) || name.split(/[/:]/).includes(filter));
}

/** Moments as days and times of a time zone. */
export function timeTexts(timeZone: string | undefined): TimeTexts {
  // Swedish writes dates and times as ISO 8601 does.
  const zone = timeZone === undefined ? {} : { timeZone };
  const day = new Intl.DateTimeFormat("sv-SE", { dateStyle: "short", ...zone });
  const time = new Intl.DateTimeFormat("sv-SE", { timeStyle: "medium", ...zone });
  return { day: (at) => day.format(new Date(at)), time: (at) => time.format(new Date(at)) };
}

function entryRows(
  entry: ChangeEntry,
  { times, colors, width }: {
    readonly times: TimeTexts;
    readonly colors: Colors;
    readonly width: number;
  },
): readonly string[] {
  const family = entry.kind === "configuration" ? "" : entry.family;
  const head = `${times.time(entry.at)}  ${family.padEnd(4)}  ${entryDuration(entry).padStart(8)}`;
  const texts = entryLines(entry).flatMap(({ tone, text }) =>
    broken(text, width - INDENT).map((each) => toned(each, { tone, colors }))
  );
  return texts.map((text, index) => `${(index === 0 ? head : "").padEnd(INDENT)}${text}`);
}

/** Lines after the first are set in; a word that is too long is cut in pieces. */
function broken(text: string, width: number): readonly string[] {
  const lines = wrapText(text, { width: width - 2 }).split("\n")
    .flatMap((line) => line.match(new RegExp(`.{1,${width - 2}}`, "gu")) ?? [""]);
  return lines.map((line, index) => index === 0 ? line : `  ${line}`);
}

function toned(
  text: string,
  { tone, colors }: { readonly tone: LineTone; readonly colors: Colors },
): string {
  switch (tone) {
    case "cause":
      return text;
    case "effect":
      return colors.cyan(text);
    case "detail":
      return colors.dim(text);
    case "bad":
      return colors.red(text);
    case "warning":
      return colors.yellow(text);
    case "good":
      return colors.green(text);
  }
}
