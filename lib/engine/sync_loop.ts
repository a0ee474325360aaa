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
import type { LoopStatus } from "./controller.ts";
import type { LoopId } from "./loop_id.ts";
import type { LoopTexts, Source, SyncEvent, SyncListener, SyncTimes } from "./sync_event.ts";
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
  readonly source: Source<Plan, Changes, Key, Report>;
  /** Told before those of the run. @default {nobody else} */
  readonly listeners?: readonly SyncListener<
    SyncEvent<NoInfer<Plan>, NoInfer<Changes>, NoInfer<Report>>
  >[];
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
  /** Those of the run, which follow all loops. */
  readonly listeners: readonly SyncListener[];
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
  readonly #listeners: readonly SyncListener<SyncEvent<Plan, Changes, Report>>[];
  readonly #options: SyncLoopOptions<Plan, Changes, Key, Report>;
  readonly #runner: SyncRunner;
  readonly #logged: RecentTexts;
  #quarantined: readonly Quarantined<Key>[] = [];
  #lastSync: LastSync<Report> | undefined;
  #isOpen = false;
  #isComplete = false;
  #failures = 0;
  #lastError: string | undefined;

  constructor(
    { clock, logger, listeners }: SyncLoopDependencies,
    options: SyncLoopOptions<Plan, Changes, Key, Report>,
  ) {
    this.id = options.id;
    this.#listeners = [...options.listeners ?? [], ...listeners];
    this.#clock = clock;
    this.#logger = logger.with({ component: "sync_loop" });
    this.#options = options;
    this.#logged = new RecentTexts({ clock });
    this.#runner = new SyncRunner({ clock }, { ...options.runner, run: () => this.sync() });
  }

  /** Has the data plane adopt the machine's state. */
  async start(): Promise<void> {
    await this.#options.dataPlane.start();
    this.#tell({ kind: "started", loop: this.id });
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
    this.#tell({ kind: "queued", loop: this.id });
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
      pending: this.#options.source.pending || last?.report.isUnfinished === true,
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
    const { dataPlane, source } = this.#options;
    const startedAt = this.#clock.now();
    let times: SyncTimes = { startedAt, plannedAt: startedAt };
    let full: boolean | undefined;
    try {
      // An item may be in quarantine once for each of its addresses.
      const again = [...new Set(this.#quarantined.map(({ key }) => key))];
      const { changes, problems } = await source.collectChanges(again);
      this.#logProblems(problems);
      times = { startedAt, plannedAt: this.#clock.now() };
      const { plan } = source;
      for (const listener of this.#listeners) {
        await listener.on({ kind: "syncing", loop: this.id, plan, changes });
      }
      const report = await dataPlane.sync(plan, changes);
      full = report.full;
      this.#succeeded(report, changes, times);
      if (report.isUnfinished) return "unfinished";
      if (report.quarantined.length > 0) return "retry";
      return Object.keys(report.operations).length === 0 ? "unchanged" : "done";
    } catch (error) {
      if (error instanceof SyncFailure) full = error.full;
      this.#failed(error, times);
      return "retry";
    } finally {
      const seconds = (this.#clock.now() - startedAt) / 1000;
      const figures = { seconds, ...(full !== undefined && { full }) };
      this.#tell({ kind: "finished", loop: this.id, ...figures });
    }
  }

  #tell(event: SyncEvent<Plan, Changes, Report>): void {
    for (const listener of this.#listeners) void listener.on(event);
  }

  #succeeded(report: Report, changes: Changes, times: SyncTimes): void {
    const { source, texts } = this.#options;
    const at = this.#clock.wallNow();
    const durationMs = this.#clock.now() - times.startedAt;
    this.#failures = 0;
    this.#lastError = undefined;
    this.#isComplete ||= !isPartial(changes);
    this.#lastSync = { at, durationMs, report };
    const quarantined = source.synced?.(report, changes, at) ?? report.quarantined;
    this.#logQuarantine(quarantined);
    this.#tell({
      ...{ kind: "synced", loop: this.id, times, plan: source.plan, changes, report },
      ...{ quarantined, at, isComplete: this.#isComplete },
    });
    this.#logger.verbose(2, texts.synced, {
      full: report.full,
      operations: report.operations,
      ms: Math.round(durationMs),
    });
  }

  #failed(error: unknown, times: SyncTimes): void {
    this.#failures++;
    this.#lastError = messageOf(error);
    this.#options.source.failed?.();
    this.#tell({ kind: "failed", loop: this.id, times, error: this.#lastError });
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

/** Whether objects are still being read for the first time: the plan may then lack items. */
function isPartial(changes: object): boolean {
  return "isPartial" in changes && changes.isPartial === true;
}

function textOf<Key>({ key, address, reason }: Quarantined<Key>): string {
  return `${key} ${address ?? ""} ${reason}`;
}
