import type { ControllerName } from "../../engine/loop_id.ts";
import type { IpFamily } from "../../net/ip_address.ts";
import type { Tone } from "../report.ts";

/** One line of an entry. */
export interface ChangeLine {
  readonly text: string;
  readonly tone?: Tone;
  /** The name of the changed object that the line is about. */
  readonly object?: string;
  /** The ServicePort, or the item of another controller, that the line is about. */
  readonly item?: string;
}

/** The loop that an entry is about. */
export interface EntryLoop {
  /** Absent for the controller of Services. */
  readonly controller?: ControllerName;
  readonly family: IpFamily;
}

/** One sync or a burst of syncs, or something else that happened. */
export interface ChangeEntry extends Partial<EntryLoop> {
  /** From 1. */
  readonly sequence: number;
  /** The time at which it ended, was last attempted or was last seen; RFC 3339. */
  readonly at: string;
  readonly kind:
    | "sync"
    | "flows"
    | "quarantine"
    | "drift"
    | "repair"
    | "health"
    | "configuration";
  /** Of a sync. `failed` becomes `applied` when a later attempt succeeds. */
  readonly outcome?: "applied" | "failed";
  /** Of a sync: from the first change to its start, in milliseconds. */
  readonly waitedMs?: number;
  /** From the first change to the end, in milliseconds. */
  readonly tookMs?: number;
  readonly lines: readonly ChangeLine[];
}

/** An entry without its place in the log. */
export type NewEntry = Omit<ChangeEntry, "sequence" | "at">;

/** The duration of one sync. */
export interface SyncTime extends EntryLoop {
  /** The end, in milliseconds since 1970. */
  readonly at: number;
  readonly durationMs: number;
  readonly outcome: "applied" | "failed";
}

/** The answer of the control socket to `/changes`. */
export interface ChangesReport {
  /** Oldest first. */
  readonly entries: readonly ChangeEntry[];
  /** Number of entries that were pushed out since the start. */
  readonly forgotten: number;
  /** Oldest first. */
  readonly syncs: readonly SyncTime[];
}

/** Causes, effects and other parts of one entry that are named; the rest is counted. */
export const MAX_NAMED = 8;
/** A reason may contain the output of a tool. */
export const MAX_REASON = 400;

/** Shortens the output of a tool. */
export function shortReason(reason: string): string {
  return reason.slice(0, MAX_REASON);
}

/** `once`, or a number of times. */
export function timesText(times: number): string {
  return times === 1 ? "once" : `${times} times`;
}

/** Milliseconds with one digit after the point. */
export function rounded(milliseconds: number): number {
  return Math.round(milliseconds * 10) / 10;
}
