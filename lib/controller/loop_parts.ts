/**
 * The parts of a loop: those that a controller passes to its own loops, and those that a run passes
 * to all loops.
 *
 * @module
 */
import type { ObjectProblem } from "../api/problem.ts";
import type { Quarantined, SyncReport } from "./data_plane.ts";
import type { LoopId } from "./loop_id.ts";

/** Turns objects into plans. */
export interface Planner<Plan, Changes, Key> {
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
}

/** The start of a sync and the end of planning, on the clock of `now()`. */
export interface SyncTimes {
  readonly startedAt: number;
  readonly plannedAt: number;
}

/** A successful sync. */
export interface FinishedSync<Plan, Changes, Report> {
  readonly plan: Plan;
  readonly changes: Changes;
  readonly report: Report;
  /** Milliseconds since 1970. */
  readonly at: number;
}

/** The controller's reactions to a sync. They must not throw or reject. */
export interface LoopFollower<Plan, Changes, Key, Report> {
  /** Called before the data plane changes; the sync waits for it. Called again after a failure. */
  syncing?(plan: Plan, changes: Changes): Promise<void>;
  /**
   * Called after a successful sync. Returns everything in quarantine, if more is known than the
   * report contains.
   */
  synced(sync: FinishedSync<Plan, Changes, Report>): readonly Quarantined<Key>[];
  failed?(): void;
  /** Called after each sync. `full`: whether everything was compared, if known. */
  finished?(figures: { readonly seconds: number; readonly full?: boolean }): void;
}

/** Observes the loops of all controllers of a run. No method may throw. */
export interface LoopObserver {
  /** The data plane adopted the state of an earlier run. */
  started?(loop: LoopId): void;
  /** A sync was requested. */
  queued?(loop: LoopId): void;
  /** `isComplete`: whether a plan of all objects has been synced. */
  synced?(
    loop: LoopId,
    figures: { readonly at: number; readonly quarantined: number; readonly isComplete: boolean },
  ): void;
  failed?(loop: LoopId): void;
  /** Called after each sync. */
  finished?(loop: LoopId, figures: { readonly seconds: number }): void;
}

/** Records the effects of each sync. */
export interface LoopRecorder {
  applied(times: SyncTimes, outcome: {
    readonly report: SyncReport<string>;
    /** All items in quarantine. */
    readonly quarantined: readonly Quarantined<string>[];
  }): void;
  failed(times: SyncTimes, message: string): void;
}

/** Constant sentences for the log, and the field that names an item there. */
export interface LoopTexts {
  readonly synced: string;
  readonly failed: string;
  readonly quarantined: string;
  readonly released: string;
  readonly item: string;
}
