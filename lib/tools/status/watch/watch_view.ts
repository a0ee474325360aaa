/**
 * The live view of `status --watch` as lines that fit a terminal, and the effect of keys on it. Pure: the
 * same model, time and size give the same lines.
 */
import { loopText } from "../../../engine/loop_id.ts";
import { wrapText } from "../../../config/wrap_text.ts";
import { printableText } from "../../../log/printable_text.ts";
import type { Key, TerminalSize } from "../../../os/terminal.ts";
import type { ChangesReport, SyncTime } from "../../changes/change_entry.ts";
import { entryMatches, entryRows } from "../../changes/changes_view.ts";
import { ageText, durationText, timeTexts } from "../number_texts.ts";
import type { StatusReport } from "../status_report.ts";
import { type FamilyView, type StatusView, statusView } from "../status_view.ts";
import { toneColors, type TonedText } from "../../cli/terminal_text.ts";

/** The last answer of kube-relay. */
export interface WatchAnswer {
  readonly status: StatusReport;
  readonly changes: ChangesReport;
}

/** The inputs of the view, besides the time and the terminal. */
export interface WatchModel {
  readonly socket: string;
  /** Absent before the first answer. */
  readonly answer?: WatchAnswer;
  /**
   * The reason why there is no answer, and the time of its first occurrence in milliseconds since
   * 1970.
   */
  readonly lost?: { readonly since: number; readonly reason: string };
  /** As for `status --filter`. */
  readonly filter: string;
  /** A new filter while it is typed. */
  readonly typed?: string;
  /** Lines of changes below the last visible one. */
  readonly scrolledBy: number;
}

/** The model after a key, and whether the view ends. */
interface KeyOutcome {
  readonly model: WatchModel;
  readonly ends: boolean;
}

const LONGEST_FILTER = 200;
const PAGE = 10;
/** More lines than any change log has. */
const FURTHEST = 1_000_000;

const SCROLL_KEYS: Readonly<Record<Key, number>> = {
  up: 1,
  down: -1,
  k: 1,
  j: -1,
  "page up": PAGE,
  "page down": -PAGE,
  home: FURTHEST,
  end: -FURTHEST,
};

/** Returns the effect of a key. */
export function pressed(model: WatchModel, key: Key): KeyOutcome {
  if (model.typed !== undefined) return { model: typing(model, key, model.typed), ends: false };
  if (key === "q" || key === "Q") return { model, ends: true };
  if (key === "/") return { model: { ...model, typed: model.filter }, ends: false };
  if (key === "escape") return { model: { ...model, filter: "", scrolledBy: 0 }, ends: false };
  const by = SCROLL_KEYS[key];
  if (by === undefined) return { model, ends: false };
  return { model: { ...model, scrolledBy: Math.max(0, model.scrolledBy + by) }, ends: false };
}

/** The model after an answer. */
export function answered(model: WatchModel, answer: WatchAnswer): WatchModel {
  const { lost: _, ...rest } = model;
  return { ...rest, answer };
}

/** The model while kube-relay does not answer; `since` stays at the first failure. */
export function unanswered(
  model: WatchModel,
  { reason, at }: { readonly reason: string; readonly at: number },
): WatchModel {
  return { ...model, lost: { since: model.lost?.since ?? at, reason } };
}

function typing(model: WatchModel, key: Key, typed: string): WatchModel {
  const { typed: _, ...rest } = model;
  if (key === "escape") return rest;
  if (key === "enter") return { ...rest, filter: typed, scrolledBy: 0 };
  if (key === "backspace") return { ...model, typed: typed.slice(0, -1) };
  if (key.length > 1 || typed.length >= LONGEST_FILTER) return model;
  return { ...model, typed: `${typed}${key}` };
}

/** The size of the terminal and the look of the lines. */
interface WatchViewOptions {
  readonly size: TerminalSize;
  /** Milliseconds since 1970. */
  readonly now: number;
  /** @default {false} */
  readonly color?: boolean;
  /** Name of a time zone. @default {that of the machine} */
  readonly timeZone?: string;
}

/** Syncs that have a bar. */
const BARS = 30;
/** Longest of the lists above the changes. */
const MOST_LISTED = 5;
/** Problems of each source. */
const MOST_PROBLEMS = 2;

/** As many lines as the terminal has rows; none is wider than it. */
export function renderWatch(model: WatchModel, options: WatchViewOptions): readonly string[] {
  const { size: { columns, rows }, color = false } = options;
  const top = model.answer === undefined
    ? waitingLines(model, options)
    : stateLines(model, model.answer, options);
  const room = Math.max(0, rows - top.length - 2);
  const body = model.answer === undefined ? [] : [
    title(changesTitle(model)),
    ...changeLines(model, { ...options, answer: model.answer, room }),
  ];
  const shown = [...top, ...body].slice(0, Math.max(0, rows - 1));
  const blank = Array.from({ length: Math.max(0, rows - 1 - shown.length) }, () => plain(""));
  const colors = toneColors(color);
  const footer: TonedText = { tone: "inverse", text: footerText(model).padEnd(columns) };
  return [...shown, ...blank, footer]
    .map(({ tone, text }) => colors[tone](fitLine(text, columns)));
}

/** Returns the number of lines by which the changes can be scrolled up. */
export function mostScrolled(model: WatchModel, options: WatchViewOptions): number {
  const { answer } = model;
  if (answer === undefined) return 0;
  const room = options.size.rows - stateLines(model, answer, options).length - 2;
  return Math.max(0, allChangeLines(model, answer, options).length - Math.max(0, room));
}

function plain(text: string): TonedText {
  return { tone: "plain", text };
}

function title(text: string): TonedText {
  return { tone: "title", text };
}

function waitingLines(
  { socket, lost }: WatchModel,
  options: WatchViewOptions,
): readonly TonedText[] {
  if (lost === undefined) return [{ tone: "detail", text: `Asking ${socket}` }];
  const reason = wrapText(lost.reason, { width: options.size.columns });
  return [
    lostLine(lost, options),
    ...reason.split("\n").map((text) => ({ tone: "detail", text }) as const),
  ];
}

function stateLines(
  { lost, filter }: WatchModel,
  { status, changes }: WatchAnswer,
  options: WatchViewOptions,
): readonly TonedText[] {
  const view = statusView(status, filter);
  const families = view.controllers.flatMap(({ families }) => families);
  const quarantine = families.flatMap(({ quarantine }) => quarantine);
  const from = view.sources.map(({ text }) => text).join("; ");
  return [
    lost ? lostLine(lost, options) : headLine(view, options),
    { tone: "detail", text: `node ${view.node}${from === "" ? "" : `  source ${from}`}` },
    ...view.sources.flatMap(({ problems }) => problems.slice(0, MOST_PROBLEMS))
      .map((problem) => ({ tone: "warning", text: `! ${problem}` }) as const),
    ...families.flatMap((family) => familyLines(family, changes.syncs, options)),
    ...(quarantine.length === 0 ? [] : [title(`IN QUARANTINE: ${quarantine.length}`)]),
    ...quarantine.slice(0, MOST_LISTED)
      .map(({ text }) => ({ tone: "bad", text: `  ${text}` }) as const),
    ...mostChangedLines(changes),
  ];
}

function headLine(
  { program, phase, startedAt, process }: StatusView,
  { now, timeZone }: WatchViewOptions,
): TonedText {
  const up = ageText(now - startedAt);
  const time = timeTexts(timeZone).time(new Date(now).toISOString());
  const text = `${program}  ${phase.text}, up ${up}  (${process})  ${time}`;
  return { tone: phase.tone, text };
}

function lostLine(
  { since }: NonNullable<WatchModel["lost"]>,
  { now, timeZone }: WatchViewOptions,
): TonedText {
  const time = timeTexts(timeZone).time(new Date(since).toISOString());
  const age = ageText(now - since);
  return {
    tone: "bad",
    text: `kube-relay: not running since ${time} (${age}); continues when it answers`,
  };
}

function familyLines(
  { name, title, mode, lastSync, notes, error }: FamilyView,
  syncs: readonly SyncTime[],
  { now }: WatchViewOptions,
): readonly TonedText[] {
  const own = syncs.filter((sync) => loopText({ controller: "service", ...sync }) === title)
    .slice(-BARS);
  const highest = Math.max(0, ...own.map(({ durationMs }) => durationMs));
  const texts = [
    ...(lastSync ? [`${ageText(now - lastSync.at)} ago in ${lastSync.duration}`] : []),
    ...(own.length > 1 ? [`highest ${durationText(highest)}`] : []),
    ...notes.map(({ text }) => text),
  ];
  const bars = sparkline(
    own.map(({ outcome, durationMs }) => outcome === "failed" ? undefined : durationMs),
  );
  return [
    {
      tone: notes.some(({ tone }) => tone === "bad") ? "warning" : "plain",
      text: `${name} ${mode.padEnd(9)} ${texts.join(", ")}  ${bars}`,
    },
    ...(error === undefined ? [] : [{ tone: "bad", text: `  ! ${error}` } as const]),
  ];
}

/** Items by how many of the entries name them. */
function mostChangedLines({ entries }: ChangesReport): readonly TonedText[] {
  const counts = new Map<string, number>();
  for (const entry of entries) {
    for (const { tone, item } of entry.lines) {
      if (tone === "effect" && item) counts.set(item, (counts.get(item) ?? 0) + 1);
    }
  }
  const most = [...counts].filter(([, count]) => count > 1)
    .sort(([a, x], [b, y]) => y - x || (a < b ? -1 : 1)).slice(0, MOST_LISTED);
  if (most.length === 0) return [];
  const text = most.map(([name, count]) => `${name} ${count}`).join("   ");
  return [title("CHANGED MOST"), plain(`  ${text}`)];
}

function changesTitle({ filter, scrolledBy }: WatchModel): string {
  const only = filter === "" ? "" : ` of '${filter}'`;
  return `CHANGES${only}${scrolledBy > 0 ? " (scrolled up; End goes to the newest)" : ""}`;
}

/** As many lines as fit, the newest at the bottom. */
function changeLines(
  model: WatchModel,
  { answer, room, ...options }: WatchViewOptions & {
    readonly answer: WatchAnswer;
    readonly room: number;
  },
): readonly TonedText[] {
  const lines = allChangeLines(model, answer, options);
  const end = Math.max(Math.min(room, lines.length), lines.length - model.scrolledBy);
  return lines.slice(Math.max(0, end - room), end);
}

/** Without the details, which `status --changes` shows: the screen is small. */
function allChangeLines(
  { filter }: WatchModel,
  { changes }: WatchAnswer,
  { size, timeZone }: WatchViewOptions,
): readonly TonedText[] {
  const entries = changes.entries.filter((entry) => entryMatches(entry, filter));
  if (entries.length === 0) return [{ tone: "detail", text: "  none" }];
  const options = { times: timeTexts(timeZone), width: Math.max(46, size.columns), details: false };
  return entries.flatMap((entry) => entryRows(entry, options))
    .map(({ tone, head, text }) => ({ tone, text: head + text }));
}

function footerText({ typed, filter }: WatchModel): string {
  if (typed !== undefined) return `Only namespace/name: ${typed}_   (Enter takes it, Esc does not)`;
  const clear = filter === "" ? "" : "   Esc shows all";
  return `q quits   / filters   Up and Down scroll${clear}`;
}

/** Any character but ASCII and the view's own: a terminal may show it wider than one column. */
const WIDE = /[^\x20-\x7e\u2026\u2581-\u2588]/gu;

/** Cuts a text to the width of the terminal. */
function fitLine(text: string, columns: number): string {
  const narrow = printableText(text).replace(WIDE, "?");
  return narrow.length <= columns ? narrow : `${narrow.slice(0, columns - 1)}\u2026`;
}

const SPARKS = ["\u2581", "\u2582", "\u2583", "\u2584", "\u2585", "\u2586", "\u2587", "\u2588"];

/** Numbers as a row of bars, the highest a full one. `undefined` is a failure, without a height. */
function sparkline(values: readonly (number | undefined)[]): string {
  const highest = values.reduce<number>((most, value) => Math.max(most, value ?? 0), 0);
  return values.map((value) => {
    if (value === undefined) return "x";
    const share = highest === 0 ? 0 : value / highest;
    return SPARKS[Math.min(SPARKS.length - 1, Math.floor(share * SPARKS.length))];
  }).join("");
}
