/**
 * The parts of a loop: what a controller gives to its own loops, and what a run gives to all.
 *
 * @module
 */
import type { ObjectProblem } from "../api/problem.ts";
import type { Quarantined, SyncReport } from "./data_plane.ts";
import type { LoopId } from "./loop_id.ts";

/** Takes objects in and gives plans out. */
export interface Planner<Plan, Changes, Key> {
  /** What the last {@linkcode collectChanges} planned. */
  readonly plan: Plan;
  /** Whether something waits for the next sync. */
  readonly pending: boolean;
  /**
   * Plans what changed since the last confirmed sync; `again` names items to be tried once more. Changes
   * with `isPartial: true` are of a plan that may lack items.
   */
  collectChanges(again: readonly Key[]): Promise<{
    readonly changes: Changes;
    /** Values of changed objects that could not be used. */
    readonly problems: readonly ObjectProblem[];
  }>;
}

/** When a sync began, and when its plan was made, on the clock of `now()`. */
export interface SyncTimes {
  readonly startedAt: number;
  readonly plannedAt: number;
}

/** A sync that succeeded. */
export interface FinishedSync<Plan, Changes, Report> {
  readonly plan: Plan;
  readonly changes: Changes;
  readonly report: Report;
  /** Milliseconds since 1970. */
  readonly at: number;
}

/** What a controller does besides the sync itself. Nothing of it may throw or reject. */
export interface LoopFollower<Plan, Changes, Key, Report> {
  /** Before the data plane is changed; the sync waits for it. Called again after a failure. */
  syncing?(plan: Plan, changes: Changes): Promise<void>;
  /** The data plane holds the plan. Returns all that is in quarantine, where it knows more than the report. */
  synced(sync: FinishedSync<Plan, Changes, Report>): readonly Quarantined<Key>[];
  failed?(): void;
  /** After each sync. `full`: whether everything was compared, where it is known. */
  finished?(figures: { readonly seconds: number; readonly full?: boolean }): void;
}

/** Follows the loops of all controllers of a run. No method may throw. */
export interface LoopObserver {
  /** The data plane has adopted what an earlier run left. */
  started?(loop: LoopId): void;
  /** A sync was asked for. */
  queued?(loop: LoopId): void;
  /** `isComplete`: whether a plan of all objects has been synced. */
  synced?(
    loop: LoopId,
    figures: { readonly at: number; readonly quarantined: number; readonly isComplete: boolean },
  ): void;
  failed?(loop: LoopId): void;
  /** After each sync. */
  finished?(loop: LoopId, figures: { readonly seconds: number }): void;
}

/** Writes down what each sync brought into effect. */
export interface LoopRecorder {
  applied(times: SyncTimes, outcome: {
    readonly report: SyncReport<string>;
    /** All that is in quarantine now. */
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
