/**
 * The live view as lines that fit a terminal. Pure: the same model, time and size give the same lines.
 *
 * @module
 */
import { createColors } from "picocolors";
import { wrapText } from "../../../config/wrap_text.ts";
import { printableText } from "../../../log/printable_text.ts";
import type { TerminalSize } from "../../../os/terminal.ts";
import type { SyncTime } from "../../changes/change_entry.ts";
import { entryMatches, timeTexts } from "../../changes/changes_view.ts";
import {
  durationText,
  entryDuration,
  entryLines,
  type LineTone,
} from "../../changes/entry_text.ts";
import type { StatusFamily, StatusReport } from "../status_report.ts";
import { ageText } from "../status_view.ts";
import type { WatchAnswer, WatchModel } from "./watch_model.ts";

/** How the lines look. */
interface WatchViewOptions {
  readonly size: TerminalSize;
  /** Milliseconds since 1970. */
  readonly now: number;
  /** @default {false} */
  readonly color?: boolean;
  /** Name of a time zone. @default {that of the machine} */
  readonly timeZone?: string;
}

type Tone = LineTone | "title" | "footer";

/** A line before it is cut and coloured. */
interface Line {
  readonly tone: Tone;
  readonly text: string;
}

/** Syncs that are drawn. */
const BARS = 30;
/** Of each list but the changes. */
const MOST_LISTED = 5;
const INDENT = 26;

/** As many lines as the terminal has rows, or fewer; none is wider than it. */
export function renderWatch(model: WatchModel, options: WatchViewOptions): readonly string[] {
  const { size: { columns, rows }, color = false } = options;
  const footer: Line = { tone: "footer", text: footerText(model) };
  const top = model.answer === undefined
    ? waitingLines(model, options)
    : stateLines(model, model.answer, options);
  const room = Math.max(0, rows - top.length - 2);
  const body = model.answer === undefined ? [] : [
    { tone: "title", text: changesTitle(model) } as const,
    ...changeLines(model, { ...options, answer: model.answer, room }),
  ];
  const shown = [...top, ...body].slice(0, Math.max(0, rows - 1));
  const blank = Array.from({ length: Math.max(0, rows - 1 - shown.length) }, () => BLANK);
  const colors = createColors(color);
  return [...shown, ...blank, footer].map((line) => painted(line, { columns, colors }));
}

/** How far the changes can be scrolled up, in lines. */
export function mostScrolled(model: WatchModel, options: WatchViewOptions): number {
  const { answer } = model;
  if (answer === undefined) return 0;
  const room = options.size.rows - stateLines(model, answer, options).length - 2;
  return Math.max(0, allChangeLines(model, answer, options).length - Math.max(0, room));
}

const BLANK: Line = { tone: "cause", text: "" };

function waitingLines({ socket, lost }: WatchModel, options: WatchViewOptions): readonly Line[] {
  if (lost === undefined) return [{ tone: "detail", text: `Asking ${socket}` }];
  return [
    { tone: "bad", text: lostText(lost, options) },
    ...wrapText(lost.reason, { width: options.size.columns }).split("\n")
      .map((text) => ({ tone: "detail", text }) as const),
  ];
}

function stateLines(
  { lost, filter }: WatchModel,
  { status, changes }: WatchAnswer,
  options: WatchViewOptions,
): readonly Line[] {
  const quarantined = status.families.flatMap(({ quarantined }) => quarantined)
    .filter(({ key }) => key.startsWith(filter) || key.split(/[/:]/).includes(filter));
  return [
    lost ? { tone: "bad", text: lostText(lost, options) } : headLine(status, options),
    { tone: "detail", text: nodeText(status) },
    ...status.sources.flatMap(({ problems }) => problems.slice(0, 2))
      .map((problem) => ({ tone: "warning", text: `! ${problem}` }) as const),
    ...status.families.flatMap((family) => familyLines(family, changes.syncs, options)),
    ...(quarantined.length === 0 ? [] : [
      { tone: "title", text: `IN QUARANTINE: ${quarantined.length}` } as const,
      ...quarantined.slice(0, MOST_LISTED).map(({ key, address = "", reason }) =>
        ({ tone: "bad", text: `  ${key} ${address}: ${reason}` }) as const
      ),
    ]),
    ...mostChangedLines(changes),
  ];
}

function headLine(
  { version, phase, startedAt, pid }: StatusReport,
  { now, timeZone }: WatchViewOptions,
): Line {
  const up = ageText(now - Date.parse(startedAt));
  const time = timeTexts(timeZone).time(new Date(now).toISOString());
  return {
    tone: phase === "serving" ? "good" : "warning",
    text: `kube-relay v${version}  ${phase}, up ${up}  (process ${pid})  ${time}`,
  };
}

function lostText(
  { since }: NonNullable<WatchModel["lost"]>,
  { now, timeZone }: WatchViewOptions,
): string {
  const time = timeTexts(timeZone).time(new Date(since).toISOString());
  return `kube-relay: not running since ${time} (${ageText(now - since)}); goes on when it answers`;
}

function nodeText({ node, sources }: StatusReport): string {
  const zone = node.zone === undefined ? "" : `, zone ${node.zone}`;
  const from = sources.map(({ name, state }) => `${name}: ${state}`).join("; ");
  return `node ${node.name}${zone}${from === "" ? "" : `  source ${from}`}`;
}

function familyLines(
  { family, mode, lastSync, pending, failures, lastError }: StatusFamily,
  syncs: readonly SyncTime[],
  { now }: WatchViewOptions,
): readonly Line[] {
  const own = syncs.filter((sync) => sync.family === family).slice(-BARS);
  const bars = sparkline(
    own.map(({ outcome, durationMs }) => outcome === "failed" ? undefined : durationMs),
  );
  const highest = Math.max(0, ...own.map(({ durationMs }) => durationMs));
  const last = lastSync === undefined
    ? "no sync yet"
    : `${ageText(now - Date.parse(lastSync.at))} ago in ${durationText(lastSync.durationMs)}`;
  const notes = [
    ...(own.length > 1 ? [`highest ${durationText(highest)}`] : []),
    ...(pending ? ["changes wait"] : []),
    ...(failures > 0 ? [`${failures} FAILED since`] : []),
  ];
  return [
    {
      tone: failures > 0 ? "warning" : "cause",
      text: `${family} ${mode.padEnd(9)} ${[last, ...notes].join(", ")}  ${bars}`,
    },
    ...(lastError === undefined ? [] : [{ tone: "bad", text: `  ! ${lastError}` } as const]),
  ];
}

/** ServicePorts by how many of the entries name them. */
function mostChangedLines({ entries }: WatchAnswer["changes"]): readonly Line[] {
  const counts = new Map<string, number>();
  for (const entry of entries) {
    for (const { servicePort } of entry.kind === "sync" ? entry.effects : []) {
      counts.set(servicePort, (counts.get(servicePort) ?? 0) + 1);
    }
  }
  const most = [...counts].filter(([, count]) => count > 1)
    .sort(([a, x], [b, y]) => y - x || (a < b ? -1 : 1)).slice(0, MOST_LISTED);
  if (most.length === 0) return [];
  return [
    { tone: "title", text: "CHANGED MOST" },
    { tone: "cause", text: `  ${most.map(([name, count]) => `${name} ${count}`).join("   ")}` },
  ];
}

function changesTitle({ filter, scrolledBy }: WatchModel): string {
  const only = filter === "" ? "" : ` of '${filter}'`;
  return `CHANGES${only}${scrolledBy > 0 ? " (scrolled up; End goes to the newest)" : ""}`;
}

/** The newest that there is room for, the last one at the bottom. */
function changeLines(
  model: WatchModel,
  { answer, room, ...options }: WatchViewOptions & {
    readonly answer: WatchAnswer;
    readonly room: number;
  },
): readonly Line[] {
  const lines = allChangeLines(model, answer, options);
  const end = Math.max(Math.min(room, lines.length), lines.length - model.scrolledBy);
  return lines.slice(Math.max(0, end - room), end);
}

function allChangeLines(
  { filter }: WatchModel,
  { changes }: WatchAnswer,
  { size, timeZone }: WatchViewOptions,
): readonly Line[] {
  const entries = changes.entries.filter((entry) => entryMatches(entry, filter));
  if (entries.length === 0) return [{ tone: "detail", text: "  none" }];
  const { time } = timeTexts(timeZone);
  return entries.flatMap((entry) => {
    const family = entry.kind === "configuration" ? "" : entry.family;
    const head = `${time(entry.at)}  ${family.padEnd(4)}  ${entryDuration(entry).padStart(8)}`;
    // What was done in detail is left to `status --changes`: here the screen is small.
    const told = entryLines(entry).filter(({ tone }) => tone !== "detail");
    return told.flatMap(({ tone, text }) =>
      wrapText(text, { width: Math.max(20, size.columns - INDENT) }).split("\n")
        .map((piece) => ({ tone, text: piece }))
    ).map(({ tone, text }, index) => ({
      tone,
      text: `${(index === 0 ? head : "").padEnd(INDENT)}${text}`,
    }));
  });
}

function footerText({ typed, filter }: WatchModel): string {
  if (typed !== undefined) return `Only namespace/name: ${typed}_   (Enter takes it, Esc does not)`;
  const clear = filter === "" ? "" : "   Esc shows all";
  return `q ends   / filters   Up and Down scroll${clear}`;
}

/** What of our own is no ASCII, and as wide. */
const OWN = "\u2026\u2581-\u2588";
const WIDE = new RegExp(`[^\\x20-\\x7e${OWN}]`, "gu");

/** Cut to the width of the terminal: a letter of another script may be wider than one column. */
function painted(
  { tone, text }: Line,
  { columns, colors }: {
    readonly columns: number;
    readonly colors: ReturnType<typeof createColors>;
  },
): string {
  const plain = printableText(text).replace(WIDE, "?");
  const cut = plain.length <= columns ? plain : `${plain.slice(0, columns - 1)}\u2026`;
  switch (tone) {
    case "cause":
      return cut;
    case "effect":
      return colors.cyan(cut);
    case "detail":
      return colors.dim(cut);
    case "bad":
      return colors.red(cut);
    case "warning":
      return colors.yellow(cut);
    case "good":
      return colors.green(cut);
    case "title":
      return colors.bold(cut);
    case "footer":
      return colors.inverse(cut.padEnd(columns));
  }
}

/**
 * Numbers as a row of bars, one letter each.
 *
 * @module
 */

const SPARKS = ["\u2581", "\u2582", "\u2583", "\u2584", "\u2585", "\u2586", "\u2587", "\u2588"];

/** The highest is a whole bar; `undefined` is something that has no height, such as a failure. */
export function sparkline(values: readonly (number | undefined)[]): string {
  const highest = values.reduce<number>((most, value) => Math.max(most, value ?? 0), 0);
  return values.map((value) => {
    if (value === undefined) return "x";
    const share = highest === 0 ? 0 : value / highest;
    return SPARKS[Math.min(SPARKS.length - 1, Math.floor(share * SPARKS.length))];
  }).join("");
}
