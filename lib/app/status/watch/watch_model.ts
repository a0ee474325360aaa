/**
 * What the live view shows, and what keys do to it. Pure: values in, values out.
 *
 * @module
 */
import type { Key } from "../../../os/terminal.ts";
import type { ChangesReport } from "../../changes/change_entry.ts";
import type { StatusReport } from "../status_report.ts";

/** What was heard of kube-relay last. */
export interface WatchAnswer {
  readonly status: StatusReport;
  readonly changes: ChangesReport;
}

/** Everything that the view depends on, beside the time and the terminal. */
export interface WatchModel {
  readonly socket: string;
  /** Absent before the first answer. */
  readonly answer?: WatchAnswer;
  /** Why there is no answer now, and since when, in milliseconds since 1970. */
  readonly lost?: { readonly since: number; readonly reason: string };
  /** Only what this names, as `status --filter` has it. */
  readonly filter: string;
  /** What is being typed in its place. */
  readonly typed?: string;
  /** Lines of changes below the last one that is seen. */
  readonly scrolledBy: number;
}

/** A model, and whether the view is to end. */
interface KeyOutcome {
  readonly model: WatchModel;
  readonly ends: boolean;
}

/** Longest filter that can be typed. */
const LONGEST_FILTER = 200;
const PAGE = 10;
/** More lines than there are. */
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

/** What a key comes to. */
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

/** The model when nobody answers; `at` counts from the first time. */
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
