/**
 * The live view of `status --watch` as lines that fit a terminal, and the effect of keys on it. Pure: the
 * same model, time and size give the same lines.
 */
import { loopText } from "../../engine/loop_id.ts";
import { countText } from "../../log/count_text.ts";
import { printableText } from "../../log/printable_text.ts";
import type { Key, TerminalSize } from "../../os/terminal.ts";
import type { ChangesReport, SyncTime } from "../changes/change_entry.ts";
import { entryMatches, entryRows } from "../changes/changes_view.ts";
import { ageText, durationText, sizeText, timeTexts } from "./number_texts.ts";
import type { StatusReport } from "./status_report.ts";
import { trafficRate } from "./traffic.ts";
import { agesAt, statusAnswer, syncText } from "./status_answer.ts";
import { inverse, type Line, painter, type Report, reportLines } from "../report.ts";

/** The last answer of kube-relay. */
export interface WatchAnswer {
  /** Milliseconds since 1970. */
  readonly at: number;
  readonly status: StatusReport;
  readonly changes: ChangesReport;
}

/** The inputs of the view, besides the time and the terminal. */
export interface WatchModel {
  readonly socket: string;
  /** Absent before the first answer. */
  readonly answer?: WatchAnswer;
  /** The traffic since the answer before; absent where it is not counted. */
  readonly rate?: ReturnType<typeof trafficRate>;
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

/** The model after a key; `undefined` = the view ends. */
export function pressed(model: WatchModel, key: Key): WatchModel | undefined {
  const { typed, ...rest } = model;
  if (typed !== undefined) {
    if (key === "escape") return rest;
    if (key === "enter") return { ...rest, filter: typed, scrolledBy: 0 };
    if (key === "backspace") return { ...model, typed: typed.slice(0, -1) };
    if (key.length > 1 || typed.length >= LONGEST_FILTER) return model;
    return { ...model, typed: `${typed}${key}` };
  }
  if (key === "q" || key === "Q") return undefined;
  if (key === "/") return { ...model, typed: model.filter };
  if (key === "escape") return { ...model, filter: "", scrolledBy: 0 };
  const by = SCROLL_KEYS[key];
  return by === undefined ? model : { ...model, scrolledBy: Math.max(0, model.scrolledBy + by) };
}

/** The model after an answer. */
export function answered(model: WatchModel, answer: WatchAnswer): WatchModel {
  const { lost: _, rate: __, ...rest } = model;
  const [before, after] = [model.answer?.status.traffic, answer.status.traffic];
  const rate = before && after && trafficRate(before, after, answer.at - model.answer!.at);
  return { ...rest, answer, ...(rate && { rate }) };
}

/** The model while kube-relay does not answer; `since` stays at the first failure. */
export function unanswered(
  model: WatchModel,
  { reason, at }: { readonly reason: string; readonly at: number },
): WatchModel {
  return { ...model, lost: { since: model.lost?.since ?? at, reason } };
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
/** Rows that the changes keep, however many problems there are. */
const LEAST_CHANGES = 6;

/** As many lines as the terminal has rows; none is wider than it. */
export function renderWatch(model: WatchModel, options: WatchViewOptions): readonly string[] {
  const { size: { columns, rows }, color = false } = options;
  const top = topLines(model, options);
  const changes = changeLines(model, options);
  const room = Math.max(0, rows - 1 - top.length);
  const end = Math.max(Math.min(room, changes.length), changes.length - model.scrolledBy);
  const shown = [...top, ...changes.slice(Math.max(0, end - room), end)].slice(0, rows - 1);
  const blank = Array.from(
    { length: Math.max(0, rows - 1 - shown.length) },
    (): Line => ({ text: "", tone: undefined }),
  );
  const paint = painter(color);
  const { typed, filter } = model;
  const keys = typed === undefined
    ? `q quits   / filters   Up and Down scroll${filter === "" ? "" : "   Esc shows all"}`
    : `Only namespace/name: ${typed}_   (Enter takes it, Esc does not)`;
  const footer = fitLine(keys.padEnd(columns), columns);
  return [
    ...[...shown, ...blank].map(({ text, tone }) => paint({ text: fitLine(text, columns), tone })),
    color ? inverse(footer) : footer,
  ];
}

/** Returns the number of lines by which the changes can be scrolled up. */
export function mostScrolled(model: WatchModel, options: WatchViewOptions): number {
  const room = options.size.rows - 1 - topLines(model, options).length;
  return Math.max(0, changeLines(model, options).length - Math.max(0, room));
}

/** The state, up to the heading of the changes. */
function topLines(model: WatchModel, options: WatchViewOptions): readonly Line[] {
  const { answer, lost, socket, filter, scrolledBy } = model;
  const { columns, rows } = options.size;
  if (answer === undefined) {
    if (lost === undefined) return [{ tone: "detail", text: `Asking ${socket}` }];
    const reason = { title: "", rows: [{ cells: [lost.reason] }], parts: [] };
    return [lostLine(lost, options), ...reportLines(reason, columns)];
  }
  const state = reportLines(stateReport(model, answer, options), columns)
    .filter(({ text }) => text !== "");
  return [
    ...(lost ? [lostLine(lost, options), ...state.slice(1)] : state)
      .slice(0, Math.max(1, rows - LEAST_CHANGES)),
    {
      tone: "title",
      text: `CHANGES${filter === "" ? "" : ` of '${filter}'`}${
        scrolledBy > 0 ? " (scrolled up; End goes to the newest)" : ""
      }`,
    },
  ];
}

/** The head of the status with its problems, the syncs, and what changed most. */
function stateReport(
  { filter, rate }: WatchModel,
  { status, changes }: WatchAnswer,
  { now }: WatchViewOptions,
): Report {
  const time = agesAt(now);
  const head = statusAnswer(status, { time, filter, show: "problems", mostProblems: MOST_LISTED });
  const { families, controllers = [] } = status;
  const loops = [
    ...families.map((family) => ({ ...family, controller: "service" as const })),
    ...controllers.flatMap(({ controller, families }) =>
      families.map((family) => ({ controller, mode: "", ...family }))
    ),
  ];
  const rows = loops.map((loop) => {
    const { failures, mode } = loop;
    const title = loopText(loop);
    const syncs = changes.syncs
      .filter((sync) => loopText({ controller: "service", ...sync }) === title).slice(-BARS);
    const highest = Math.max(0, ...syncs.map(({ durationMs }) => durationMs));
    const notes = syncs.length > 1 ? `, highest ${durationText(highest)}` : "";
    const tone = failures > 0 ? { tone: "warning" as const } : {};
    return { cells: [title, mode, `${syncText(loop, time, notes)}  ${sparkline(syncs)}`], ...tone };
  });
  const most = mostChanged(changes);
  const perSecond = rate &&
    `${Math.round(rate.connections)} connections/s, ${sizeText(Math.round(rate.bytes))}/s`;
  const facts = head.rows.filter(({ cells: [label] }) => label !== "Source").map((row) =>
    perSecond && row.cells[0] === "Traffic"
      ? { cells: ["Traffic", `${perSecond}; ${row.cells[1]}`] }
      : row
  );
  const [summary, ...others] = facts;
  // One line, however many manifest files there are.
  const [first, ...files] = status.sources;
  const more = files.length === 0 ? "" : `, and ${countText(files.length, "other source")}`;
  const sources = first ? [{ cells: ["Source", `${first.name}: ${first.state}${more}`] }] : [];
  // A small screen cuts the end: what is wrong comes first.
  const parts = [
    ...head.parts,
    { title: "", rows, parts: [] },
    { title: "", rows: [...others, ...sources], parts: [] },
    ...(most === "" ? [] : [{ title: "CHANGED MOST", rows: [{ cells: [most] }], parts: [] }]),
  ];
  return { ...head, rows: summary ? [summary] : [], parts };
}

function lostLine(
  { since }: NonNullable<WatchModel["lost"]>,
  { now, timeZone }: WatchViewOptions,
): Line {
  const time = timeTexts(timeZone).time(new Date(since).toISOString());
  const age = ageText(now - since);
  return {
    tone: "bad",
    text: `kube-relay: not running since ${time} (${age}); continues when it answers`,
  };
}

/** Items by how many of the entries name them. */
function mostChanged({ entries }: ChangesReport): string {
  const counts = new Map<string, number>();
  for (const entry of entries) {
    for (const { tone, item } of entry.lines) {
      if (tone === "effect" && item) counts.set(item, (counts.get(item) ?? 0) + 1);
    }
  }
  return [...counts].filter(([, count]) => count > 1)
    .sort(([a, x], [b, y]) => y - x || (a < b ? -1 : 1)).slice(0, MOST_LISTED)
    .map(([name, count]) => `${name} ${count}`).join("   ");
}

/** Without the details, which `status --changes` shows: the screen is small. */
function changeLines(
  { filter, answer }: WatchModel,
  { size, timeZone }: WatchViewOptions,
): readonly Line[] {
  if (answer === undefined) return [];
  const entries = answer.changes.entries.filter((entry) => entryMatches(entry, filter));
  if (entries.length === 0) return [{ tone: "detail", text: "  none" }];
  const times = timeTexts(timeZone);
  const rows = entries.flatMap((entry) => entryRows(entry, times))
    .filter(({ tone }) => tone !== "detail");
  return reportLines({ title: "", rows, parts: [] }, size.columns);
}

/** Any character but ASCII and the view's own: a terminal may show it wider than one column. */
const WIDE = /[^\x20-\x7e\u2026\u2581-\u2588]/gu;

/** Cuts a text to the width of the terminal. */
function fitLine(text: string, columns: number): string {
  const narrow = printableText(text).replace(WIDE, "?");
  return narrow.length <= columns ? narrow : `${narrow.slice(0, columns - 1)}\u2026`;
}

const SPARKS = ["\u2581", "\u2582", "\u2583", "\u2584", "\u2585", "\u2586", "\u2587", "\u2588"];

/** Durations as a row of bars, the highest a full one. A failure has no height. */
function sparkline(syncs: readonly SyncTime[]): string {
  const done = syncs.filter(({ outcome }) => outcome !== "failed");
  const highest = done.reduce((most, { durationMs }) => Math.max(most, durationMs), 0);
  return syncs.map(({ durationMs, outcome }) => {
    if (outcome === "failed") return "x";
    const share = highest === 0 ? 0 : durationMs / highest;
    return SPARKS[Math.min(SPARKS.length - 1, Math.floor(share * SPARKS.length))];
  }).join("");
}
