/**
 * The loop of a controller: collects changes, has the data plane updated, and keeps the result. The
 * controller plans, and reacts to syncs.
 *
 * @module
 */
import type { ObjectProblem } from "../api/problem.ts";
import type { Logger } from "../log/logger.ts";
import { messageOf } from "../log/message_of.ts";
import { LimitedLines } from "../log/limited_lines.ts";
import { RecentTexts } from "../log/recent_texts.ts";
import type { Clock } from "../os/clock.ts";
import type { DataPlane, Quarantined, SyncReport } from "./data_plane.ts";
import type { LoopStatus } from "./controller.ts";
import type { LoopId } from "./loop_id.ts";
import type {
  LoopFollower,
  LoopObserver,
  LoopRecorder,
  LoopTexts,
  Planner,
  SyncTimes,
} from "./loop_parts.ts";
import { SyncFailure } from "./sync_failure.ts";
import {
  type RunnerActivity,
  type RunOutcome,
  SyncRunner,
  type SyncRunnerOptions,
} from "./sync_runner.ts";

/** The parts of a loop. */
export interface SyncLoopOptions<Plan, Changes, Key, Report> {
  readonly id: LoopId;
  readonly dataPlane: Pick<DataPlane<Plan, Changes, Report>, "start" | "sync">;
  readonly planner: Planner<Plan, Changes, Key>;
  readonly follower: LoopFollower<Plan, Changes, Key, Report>;
  readonly recorder?: LoopRecorder | undefined;
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

/** The dependencies of a loop. */
export interface SyncLoopDependencies {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly loopObservers: readonly LoopObserver[];
}

/** Runs syncs, one at a time. */
export class SyncLoop<
  Plan,
  Changes extends object,
  Key extends string,
  Report extends SyncReport<Key>,
> {
  readonly id: LoopId;
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #observers: readonly LoopObserver[];
  readonly #options: SyncLoopOptions<Plan, Changes, Key, Report>;
  readonly #runner: SyncRunner;
  readonly #logged: RecentTexts;
  /** The lines about single items. */
  readonly #lines: LimitedLines;
  #quarantined: readonly Quarantined<Key>[] = [];
  #lastSync: LastSync<Report> | undefined;
  #isOpen = false;
  #isComplete = false;
  #failures = 0;
  #lastError: string | undefined;

  constructor(
    { clock, logger, loopObservers }: SyncLoopDependencies,
    options: SyncLoopOptions<Plan, Changes, Key, Report>,
  ) {
    this.id = options.id;
    this.#observers = loopObservers;
    this.#clock = clock;
    this.#logger = logger.with({ component: "sync_loop" });
    this.#options = options;
    this.#logged = new RecentTexts({ clock });
    this.#lines = new LimitedLines({ clock, logger: this.#logger });
    this.#runner = new SyncRunner({ clock }, { ...options.runner, run: () => this.sync() });
  }

  /** Has the data plane adopt the machine's state. */
  async start(): Promise<void> {
    await this.#options.dataPlane.start();
    for (const observer of this.#observers) observer.started?.(this.id);
  }

  /** Permits syncs, and requests the first one. */
  open(): void {
    if (!this.#isOpen) this.#runner.start();
    this.#isOpen = true;
    this.request();
  }

  get isOpen(): boolean {
    return this.#isOpen;
  }

  /**
   * Requests a sync. Requests before the next one starts are combined; requests before
   * {@linkcode open} are ignored.
   */
  request(): void {
    if (!this.#isOpen) return;
    for (const observer of this.#observers) observer.queued?.(this.id);
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

  /** Returns the state of the loop; `summary` describes the data plane. */
  status(summary: string): LoopStatus {
    const last = this.#lastSync;
    return {
      family: this.id.family,
      summary,
      ...(last && {
        lastSync: {
          at: new Date(last.at).toISOString(),
          durationMs: Math.round(last.durationMs * 10) / 10,
          full: last.report.full,
          operations: last.report.operations,
        },
      }),
      pending: this.#options.planner.pending || last?.report.isUnfinished === true,
      failures: this.#failures,
      ...(this.#lastError !== undefined && { lastError: this.#lastError }),
      quarantined: this.#quarantined,
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
    let times: SyncTimes = { startedAt, plannedAt: startedAt };
    let full: boolean | undefined;
    try {
      // An item may be in quarantine once for each of its addresses.
      const again = [...new Set(this.#quarantined.map(({ key }) => key))];
      const { changes, problems } = await planner.collectChanges(again);
      this.#logProblems(problems);
      times = { startedAt, plannedAt: this.#clock.now() };
      await follower.syncing?.(planner.plan, changes);
      const report = await dataPlane.sync(planner.plan, changes);
      full = report.full;
      this.#succeeded(report, { changes, times });
      if (report.isUnfinished) return "unfinished";
      if (report.quarantined.length > 0) return "retry";
      return Object.keys(report.operations).length === 0 ? "unchanged" : "done";
    } catch (error) {
      if (error instanceof SyncFailure) full = error.full;
      this.#failed(error, times);
      return "retry";
    } finally {
      const seconds = (this.#clock.now() - startedAt) / 1000;
      follower.finished?.({ seconds, ...(full !== undefined && { full }) });
      for (const observer of this.#observers) observer.finished?.(this.id, { seconds });
    }
  }

  #succeeded(
    report: Report,
    { changes, times }: { readonly changes: Changes; readonly times: SyncTimes },
  ): void {
    const { planner: { plan }, follower, recorder, texts } = this.#options;
    const at = this.#clock.wallNow();
    const durationMs = this.#clock.now() - times.startedAt;
    this.#failures = 0;
    this.#lastError = undefined;
    this.#isComplete ||= !isPartial(changes);
    this.#lastSync = { at, durationMs, report };
    const quarantined = follower.synced({ plan, changes, report, at });
    recorder?.applied(times, { report, quarantined });
    this.#logQuarantine(quarantined);
    const figures = { at, quarantined: quarantined.length, isComplete: this.#isComplete };
    for (const observer of this.#observers) observer.synced?.(this.id, figures);
    this.#logger.verbose(2, texts.synced, {
      full: report.full,
      operations: report.operations,
      ms: Math.round(durationMs),
    });
  }

  #failed(error: unknown, times: SyncTimes): void {
    this.#failures++;
    this.#lastError = messageOf(error);
    const { follower, recorder } = this.#options;
    recorder?.failed(times, this.#lastError);
    follower.failed?.();
    for (const observer of this.#observers) observer.failed?.(this.id);
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
      this.#lines.warn(texts.quarantined, {
        [texts.item]: key,
        ...(address !== undefined && { address }),
        reason,
      });
    }
    for (const { key } of this.#quarantined) {
      if (!keys.has(key)) this.#lines.info(texts.released, { [texts.item]: key });
    }
    this.#quarantined = now;
  }

  #logProblems(problems: readonly ObjectProblem[]): void {
    for (const problem of problems) {
      // An object that is created again every second has the same faults each time.
      if (!this.#logged.isNews(JSON.stringify(problem))) continue;
      const { message, ...fields } = problem;
      this.#lines.warn(message, fields);
    }
  }
}

/** Whether objects are still being read for the first time: the plan may then lack items. */
function isPartial(changes: object): boolean {
  return "isPartial" in changes && changes.isPartial === true;
}

function textOf<Key>({ key, address, reason }: Quarantined<Key>): string {
  return `${key} ${address ?? ""} ${reason}`;
}
