/**
 * What a loop takes its plans from, and what it tells everybody who follows it.
 *
 * @module
 */
import type { ObjectProblem } from "../api/problem.ts";
import type { Quarantined, SyncReport } from "./data_plane.ts";
import type { LoopId } from "./loop_id.ts";

/** Turns objects into plans. */
export interface Source<Plan, Changes, Key, Report> {
  /** The result of the last {@linkcode collectChanges}. */
  readonly plan: Plan;
  /** Whether changes wait for the next sync. */
  readonly pending: boolean;
  /**
   * Plans the changes since the last confirmed sync; `again` names items to retry. Changes with
   * `isPartial: true` belong to a plan that may lack items.
   */
  collectChanges(again: readonly Key[]): Promise<{
    readonly changes: Changes;
    /** Invalid values of changed objects. */
    readonly problems: readonly ObjectProblem[];
  }>;
  /**
   * The plan was applied, at this time in milliseconds since 1970. Returns everything in quarantine.
   * @default {that of the report}
   */
  synced?(report: Report, changes: Changes, at: number): readonly Quarantined<Key>[];
  /** The sync failed: its changes are collected again. */
  failed?(): void;
}

/** The start of a sync and the end of planning, on the clock of `now()`. */
export interface SyncTimes {
  readonly startedAt: number;
  readonly plannedAt: number;
}

/** What happens in a loop. */
export type SyncEvent<Plan = unknown, Changes = object, Report = SyncReport<string>> =
  & { readonly loop: LoopId }
  & (
    /**
     * `started`: the data plane adopted the state of an earlier run. `queued`: a sync was requested.
     * `running`: a sync begins, requested or not.
     */
    | { readonly kind: "started" | "queued" | "running" }
    /** The data plane is about to change, with the arguments of the later event; repeated after a failure. */
    | { readonly kind: "syncing"; readonly plan: Plan; readonly changes: Changes }
    | AppliedSync<Plan, Changes, Report>
    | {
      readonly kind: "failed";
      readonly times: SyncTimes;
      readonly seconds: number;
      readonly error: string;
      /** Whether everything was compared, if known. */
      readonly full?: boolean;
    }
  );

/** A successful sync. */
export interface AppliedSync<Plan = unknown, Changes = object, Report = SyncReport<string>> {
  readonly kind: "synced";
  readonly times: SyncTimes;
  /** A live view: it must be read before the listener returns, or its changes be waited for. */
  readonly plan: Plan;
  /** Those since the last successful sync, whole even if syncs failed in between. */
  readonly changes: Changes;
  readonly report: Report;
  /** All items in quarantine. */
  readonly quarantined: readonly Quarantined<string>[];
  /** Milliseconds since 1970. */
  readonly at: number;
  /** Whether a plan of all objects has been synced. */
  readonly isComplete: boolean;
  readonly seconds: number;
}

/** Follows loops. The sync waits for what it returns of an event `syncing`. Must not throw or reject. */
export interface SyncListener<Event = SyncEvent> {
  on(event: Event): void | Promise<void>;
}

/** Constant sentences for the log, and the field that names an item there. */
export interface LoopTexts {
  readonly synced: string;
  readonly failed: string;
  readonly quarantined: string;
  readonly released: string;
  readonly item: string;
}

/** Thrown by `Backend.sync()`; other errors do not state the kind of sync. */
export class SyncFailure extends Error {
  override name = "SyncFailure";
  /** Whether everything was compared, or only the changes. */
  readonly full: boolean;

  constructor(message: string, { full, ...options }: ErrorOptions & { readonly full: boolean }) {
    super(message, options);
    this.full = full;
  }
}
