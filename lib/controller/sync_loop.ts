/**
 * The loop of a controller: collects changes, has the data plane updated, and keeps the result. The
 * controller plans, and reacts to syncs.
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

/** Turns objects into plans. */
interface Planner<Plan, Changes, Key> {
  /** The result of the last {@linkcode collectChanges}. */
  readonly plan: Plan;
  /** Plans the changes since the last confirmed sync; `again` names items to retry. */
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

/** The controller's reactions to a sync. They must not throw or reject. */
interface LoopFollower<Plan, Changes, Key, Report> {
  /** Called before the data plane changes; the sync waits for it. Called again after a failure. */
  syncing(plan: Plan, changes: Changes): Promise<void>;
  /**
   * Called after a successful sync. Returns everything in quarantine, if more is known than the
   * report contains.
   */
  synced(sync: FinishedSync<Plan, Changes, Report>): readonly Quarantined<Key>[];
  failed(message: string, times: SyncTimes): void;
  /** Called after each sync. `full`: whether everything was compared, if known. */
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

/** The parts of a loop. */
export interface SyncLoopOptions<Plan, Changes, Key, Report> {
  readonly dataPlane: Pick<DataPlane<Plan, Changes, Report>, "sync">;
  readonly planner: Planner<Plan, Changes, Key>;
  readonly follower: LoopFollower<Plan, Changes, Key, Report>;
  readonly texts: LoopTexts;
  readonly runner: SyncRunnerOptions;
}

/** The last successful sync, for `status`. */
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

  /** Starts the loop; an earlier request runs at once. */
  start(): void {
    this.#runner.start();
  }

  /** Requests a sync. Requests before the next one starts are combined. */
  request(): void {
    this.#runner.request();
  }

  /** Stops starting syncs, and waits for the running one. */
  async stop(): Promise<void> {
    await this.#runner.stop();
  }

  /** Pending and running syncs, on the clock of `now()`. */
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

  /** The number of failed syncs since the last good one, and the newest reason. */
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
   * Updates the data plane. Never throws: a failure is logged and counted, and its changes are
   * retried with the next ones. The caller has one in flight at most.
   */
  async sync(): Promise<RunOutcome> {
    const { dataPlane, planner, follower } = this.#options;
    const startedAt = this.#clock.now();
    const again = this.#quarantined.map(({ key }) => key);
    const { changes, problems } = await planner.collectChanges(again);
    this.#logProblems(problems);
    const times: SyncTimes = { startedAt, plannedAt: this.#clock.now() };
    let full: boolean | undefined;
    try {
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

  /** Logs once when an item enters quarantine and once when it leaves. */
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
      // An object that is created again every second has the same faults each time.
      if (!this.#logged.isNews(JSON.stringify(problem))) continue;
      const { message, ...fields } = problem;
      this.#logger.warn(message, fields);
    }
  }
}

function textOf<Key>({ key, address, reason }: Quarantined<Key>): string {
  return `${key} ${address ?? ""} ${reason}`;
}
