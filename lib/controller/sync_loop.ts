/**
 * The loop of a controller: collects what changed, has the data plane brought up to date, and knows how
 * that went. What is planned, and what else follows a sync, is the controller's.
 *
 * @module
 */
import type { ObjectProblem } from "../api/problem.ts";
import type { Logger } from "../log/logger.ts";
import { messageOf } from "../log/message_of.ts";
import { RecentTexts } from "../log/recent_texts.ts";
import type { Clock } from "../os/clock.ts";
import type { DataPlane, Quarantined, SyncReport } from "./data_plane.ts";
import { SyncFailure } from "./sync_failure.ts";
import {
  type RunnerActivity,
  type RunOutcome,
  SyncRunner,
  type SyncRunnerOptions,
} from "./sync_runner.ts";

/** Changes of a plan. */
interface LoopChanges {
  /** Whether objects are still being read for the first time: the plan may then lack items. */
  readonly isPartial?: boolean;
}

/** Takes objects in and gives plans out. */
interface Planner<Plan, Changes, Key> {
  /** What the last {@linkcode collectChanges} planned. */
  readonly plan: Plan;
  /** Plans what changed since the last confirmed sync; `again` names items to be tried once more. */
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
  readonly times: SyncTimes;
  /** Whether it is the first one, or the first one of a plan of all objects. */
  readonly isFirst: boolean;
  readonly plan: Plan;
  readonly changes: Changes;
  readonly report: Report;
  /** Milliseconds since 1970. */
  readonly at: number;
  readonly durationMs: number;
}

/** What a controller does beside the sync itself. Nothing of it may throw or reject. */
interface LoopFollower<Plan, Changes, Key, Report> {
  /** Before the data plane is changed; the sync waits for it. Called again after a failure. */
  syncing(plan: Plan, changes: Changes): Promise<void>;
  /** The data plane holds the plan. Returns all that is in quarantine, where it knows more than the report. */
  synced(sync: FinishedSync<Plan, Changes, Report>): readonly Quarantined<Key>[];
  failed(message: string, times: SyncTimes): void;
  /** After each sync. `full`: whether everything was compared, where it is known. */
  finished(figures: { readonly seconds: number; readonly full?: boolean }): void;
}

/** Constant sentences for the log, and the field that names an item there. */
interface LoopTexts {
  readonly synced: string;
  readonly failed: string;
  readonly quarantined: string;
  readonly released: string;
  readonly item: string;
}

/** What a loop connects. */
export interface SyncLoopOptions<Plan, Changes, Key, Report> {
  readonly dataPlane: Pick<DataPlane<Plan, Changes, Report>, "sync">;
  readonly planner: Planner<Plan, Changes, Key>;
  readonly follower: LoopFollower<Plan, Changes, Key, Report>;
  readonly texts: LoopTexts;
  readonly runner: SyncRunnerOptions;
}

/** How the last successful sync went, for `status`. */
interface LastSync<Report> {
  /** Milliseconds since 1970. */
  readonly at: number;
  readonly durationMs: number;
  readonly report: Report;
}

/** Runs syncs, one at a time. */
export class SyncLoop<
  Plan,
  Changes extends LoopChanges,
  Key extends string,
  Report extends SyncReport<Key>,
> {
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #options: SyncLoopOptions<Plan, Changes, Key, Report>;
  readonly #runner: SyncRunner;
  readonly #logged: RecentTexts;
  #quarantined: readonly Quarantined<Key>[] = [];
  #lastSync: LastSync<Report> | undefined;
  #isComplete = false;
  #failures = 0;
  #lastError: string | undefined;

  constructor(
    { clock, logger }: { readonly clock: Clock; readonly logger: Logger },
    options: SyncLoopOptions<Plan, Changes, Key, Report>,
  ) {
    this.#clock = clock;
    this.#logger = logger.with({ component: "sync_loop" });
    this.#options = options;
    this.#logged = new RecentTexts({ clock });
    this.#runner = new SyncRunner({ clock }, { ...options.runner, run: () => this.sync() });
  }

  /** Begins to run; a request that came earlier runs at once. */
  start(): void {
    this.#runner.start();
  }

  /** Asks for a sync. Requests before the next one starts are one. */
  request(): void {
    this.#runner.request();
  }

  /** Starts no further sync, waits for the running one. */
  async stop(): Promise<void> {
    await this.#runner.stop();
  }

  /** What waits and what runs, on the clock of `now()`. */
  get activity(): RunnerActivity {
    return this.#runner.activity;
  }

  /** Whether a plan of all objects has been synced. */
  get isComplete(): boolean {
    return this.#isComplete;
  }

  get lastSync(): LastSync<Report> | undefined {
    return this.#lastSync;
  }

  /** Failed syncs since the last good one, and why the newest of them failed. */
  get failure(): { readonly count: number; readonly error?: string } {
    return {
      count: this.#failures,
      ...(this.#lastError !== undefined && { error: this.#lastError }),
    };
  }

  get quarantined(): readonly Quarantined<Key>[] {
    return this.#quarantined;
  }

  /**
   * Brings the data plane up to date. Never throws: a failure is logged, counted, and its changes
   * come again with the next ones. The caller has one in flight at most.
   */
  async sync(): Promise<RunOutcome> {
    const { dataPlane, planner, follower } = this.#options;
    const startedAt = this.#clock.now();
    let times: SyncTimes = { startedAt, plannedAt: startedAt };
    let full: boolean | undefined;
    try {
      const again = this.#quarantined.map(({ key }) => key);
      const { changes, problems } = await planner.collectChanges(again);
      this.#logProblems(problems);
      times = { startedAt, plannedAt: this.#clock.now() };
      await follower.syncing(planner.plan, changes);
      const report = await dataPlane.sync(planner.plan, changes);
      full = report.full;
      this.#succeeded(report, { changes, times });
      if (report.quarantined.length > 0) return "retry";
      return Object.keys(report.operations).length === 0 ? "unchanged" : "done";
    } catch (error) {
      if (error instanceof SyncFailure) full = error.full;
      this.#failed(error, times);
      return "retry";
    } finally {
      const seconds = (this.#clock.now() - startedAt) / 1000;
      follower.finished({ seconds, ...(full !== undefined && { full }) });
    }
  }

  #succeeded(
    report: Report,
    { changes, times }: { readonly changes: Changes; readonly times: SyncTimes },
  ): void {
    const { planner: { plan }, follower, texts } = this.#options;
    const at = this.#clock.wallNow();
    const durationMs = this.#clock.now() - times.startedAt;
    this.#failures = 0;
    this.#lastError = undefined;
    const isFirst = this.#lastSync === undefined || !this.#isComplete && !changes.isPartial;
    this.#isComplete ||= !changes.isPartial;
    this.#lastSync = { at, durationMs, report };
    const sync = { times, isFirst, plan, changes, report, at, durationMs };
    this.#logQuarantine(follower.synced(sync));
    this.#logger.verbose(2, texts.synced, {
      full: report.full,
      operations: report.operations,
      ms: Math.round(durationMs),
    });
  }

  #failed(error: unknown, times: SyncTimes): void {
    this.#failures++;
    this.#lastError = messageOf(error);
    this.#options.follower.failed(this.#lastError, times);
    this.#logger.error(this.#options.texts.failed, { error, failures: this.#failures });
  }

  /** Logs once when an item goes into quarantine and once when it comes out. */
  #logQuarantine(now: readonly Quarantined<Key>[]): void {
    const { texts } = this.#options;
    const before = new Set(this.#quarantined.map(textOf));
    const keys = new Set(now.map(({ key }) => key));
    for (const entry of now) {
      if (before.has(textOf(entry))) continue;
      const { key, address, reason } = entry;
      this.#logger.warn(texts.quarantined, {
        [texts.item]: key,
        ...(address !== undefined && { address }),
        reason,
      });
    }
    for (const { key } of this.#quarantined) {
      if (!keys.has(key)) this.#logger.info(texts.released, { [texts.item]: key });
    }
    this.#quarantined = now;
  }

  #logProblems(problems: readonly ObjectProblem[]): void {
    for (const problem of problems) {
      // An object that is created anew every second has the same faults each time.
      if (!this.#logged.isNews(JSON.stringify(problem))) continue;
      const { message, ...fields } = problem;
      this.#logger.warn(message, fields);
    }
  }
}

function textOf<Key>({ key, address, reason }: Quarantined<Key>): string {
  return `${key} ${address ?? ""} ${reason}`;
}
