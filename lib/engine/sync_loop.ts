/**
 * The loop of a controller: decides when a sync runs, collects changes, has the data plane updated, and
 * keeps the result. The controller plans, and reacts to syncs.
 *
 * @module
 */
import type { ObjectProblem } from "../api/problem.ts";
import type { Logger } from "../log/logger.ts";
import { messageOf } from "../log/message_of.ts";
import { RecentTexts } from "../log/recent_texts.ts";
import type { Clock, Timer } from "../os/clock.ts";
import type { LoopActivity, LoopStatus } from "./controller.ts";
import type { DataPlane, Quarantined, SyncReport } from "./data_plane.ts";
import type { LoopId } from "./loop_id.ts";
import {
  type LoopTexts,
  type Source,
  type SyncEvent,
  SyncFailure,
  type SyncListener,
  type SyncTimes,
} from "./sync_event.ts";

/** The limits on when syncs may and must run. */
export interface SyncPeriods {
  /** Time for one token, counted from the end of a regular sync. */
  readonly minPeriodMs: number;
  /** Number of successive syncs without a wait, after a quiet time. @default {2} */
  readonly burst?: number;
  /** Longest time from the end of a sync to the next one. */
  readonly maxPeriodMs: number;
  /** Delay of the n-th successive retry (n from 1), at most {@linkcode maxPeriodMs}. */
  readonly retryMs: (attempt: number) => number;
}

/**
 * The result of a sync. `unchanged`: no operation was needed, so the next change need not wait for it.
 * `unfinished`: the next sync continues this one, at once. `retry`: another sync is needed soon.
 */
export type SyncOutcome = "done" | "unchanged" | "unfinished" | "retry";

/**
 * Returns the back-off: 0.2 s doubling to 10 s, with up to 10 % jitter so that nodes do not
 * synchronize. Upstream waits a whole syncPeriod (kubernetes/kubernetes#112604).
 */
export function retryBackoff(random: () => number): (attempt: number) => number {
  return (attempt) =>
    Math.round(Math.min(10_000, 200 * 2 ** Math.min(attempt - 1, 16)) * (1 + random() / 10));
}

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
  readonly periods: SyncPeriods;
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

/**
 * Runs syncs, one at a time: combines requests, spaces syncs by a token bucket, retries failed ones, and
 * runs periodically.
 */
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
  readonly #bucket: TokenBucket;
  readonly #logged: RecentTexts;
  #quarantined: readonly Quarantined<Key>[] = [];
  #lastSync: LastSync<Report> | undefined;
  #isOpen = false;
  #isStopped = false;
  #isComplete = false;
  #requestedAt: number | undefined;
  /** Whether a request waits for a token. */
  #waits = false;
  #runningSince: number | undefined;
  #inFlight: Promise<void> | undefined;
  #mustRunAt = Infinity;
  #attempt = 0;
  #timer: Timer | undefined;
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
    this.#bucket = new TokenBucket(options.periods);
  }

  /** Has the data plane adopt the machine's state. */
  async start(): Promise<void> {
    await this.#options.dataPlane.start();
    this.#tell({ kind: "started", loop: this.id });
  }

  /** Permits syncs, and requests the first one. */
  open(): void {
    if (!this.#isOpen) this.#mustRunAt = this.#clock.now() + this.#options.periods.maxPeriodMs;
    this.#isOpen = true;
    this.request();
  }

  get isOpen(): boolean {
    return this.#isOpen;
  }

  /**
   * Requests a sync. Requests before the next one starts are combined; requests before
   * {@linkcode open} are ignored. Does nothing once stopped.
   */
  request(): void {
    if (!this.#isOpen) return;
    this.#tell({ kind: "queued", loop: this.id });
    if (this.#isStopped || this.#requestedAt !== undefined) return;
    this.#requestedAt = this.#clock.now();
    this.#schedule();
  }

  /** Stops starting syncs, and waits for the running one. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#requestedAt = undefined;
    this.#timer?.cancel();
    await this.#inFlight;
  }

  /** Pending and running syncs. */
  get activity(): LoopActivity {
    return {
      ...(this.#requestedAt !== undefined && { pendingSince: this.#requestedAt }),
      ...(this.#runningSince !== undefined && { runningSince: this.#runningSince }),
    };
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
   * retried with the next ones. Public for tests, which have one in flight at most; others call
   * {@linkcode request}.
   */
  async sync(): Promise<SyncOutcome> {
    const { dataPlane, source } = this.#options;
    const startedAt = this.#clock.now();
    let times: SyncTimes = { startedAt, plannedAt: startedAt };
    this.#tell({ kind: "running", loop: this.id });
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
      this.#succeeded(report, changes, times);
      if (report.isUnfinished) return "unfinished";
      if (report.quarantined.length > 0) return "retry";
      return Object.keys(report.operations).length === 0 ? "unchanged" : "done";
    } catch (error) {
      this.#failed(error, times);
      return "retry";
    }
  }

  #schedule(): void {
    if (this.#isStopped || this.#runningSince !== undefined) return;
    this.#timer?.cancel();
    const now = this.#clock.now();
    const due = this.#requestedAt === undefined ? Math.max(0, this.#mustRunAt - now) : 0;
    const delay = Math.max(due, this.#bucket.waitMs(now));
    if (delay === 0) this.#inFlight = this.#run(now);
    else {
      this.#waits = this.#requestedAt !== undefined;
      this.#timer = this.#clock.setTimer(delay, () => this.#schedule());
    }
  }

  async #run(startedAt: number): Promise<void> {
    this.#bucket.take(startedAt, this.#waits);
    this.#waits = false;
    this.#requestedAt = undefined;
    this.#runningSince = startedAt;
    const outcome = await this.sync().catch(() => "retry" as const);
    const now = this.#clock.now();
    this.#bucket.ended(now, outcome);
    this.#runningSince = undefined;
    this.#attempt = outcome === "retry" ? this.#attempt + 1 : 0;
    const { maxPeriodMs, retryMs } = this.#options.periods;
    const wait = outcome === "retry"
      ? retryMs(this.#attempt)
      : outcome === "unfinished"
      ? 0
      : Infinity;
    this.#mustRunAt = now + Math.min(wait, maxPeriodMs);
    this.#schedule();
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
      ...{ quarantined, at, isComplete: this.#isComplete, seconds: durationMs / 1000 },
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
    const seconds = (this.#clock.now() - times.startedAt) / 1000;
    const full = error instanceof SyncFailure ? { full: error.full } : {};
    this.#tell({ kind: "failed", loop: this.id, times, seconds, error: this.#lastError, ...full });
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

/** Tolerance for rounding of the clock, so that a regular sync does not count as extra. */
const ROUNDING_MS = 1;
/** A sync that changed nothing costs this many times its duration, and a token at most. */
const UNCHANGED_COST = 20;

/**
 * Spaces syncs. Tokens are kept as milliseconds of credit, so that whole periods add up without
 * rounding; the bucket starts full.
 *
 * A sync is *regular* if it starts at least a period after the end of the regular sync before it:
 * kube-proxy would run then as well. Any other sync is *extra*. No credit is earned during a regular
 * sync, so a sync that lasts longer than the period is followed by a pause (the complaint of
 * kubernetes/kubernetes#138073). Credit is earned during an extra sync, at most one token: otherwise
 * the sync after it would come later than kube-proxy's.
 */
class TokenBucket {
  readonly #periodMs: number;
  readonly #capacityMs: number;
  #creditMs: number;
  #countedFrom = 0;
  #regularEndedAt = -Infinity;
  /** `undefined` while no sync is in flight. */
  #run: { readonly startedAt: number; readonly isRegular: boolean } | undefined;

  constructor({ minPeriodMs, burst = 2 }: SyncPeriods) {
    this.#periodMs = minPeriodMs;
    this.#creditMs = this.#capacityMs = minPeriodMs * burst;
  }

  /** Milliseconds from `now` until {@linkcode take} may be called. */
  waitMs(now: number): number {
    return Math.max(0, this.#periodMs - this.#creditAt(now));
  }

  /** Takes a token. A sync that `waited` leaves no credit, or late timers would add up to extra syncs. */
  take(now: number, waited: boolean): void {
    this.#creditMs = waited ? 0 : this.#creditAt(now) - this.#periodMs;
    this.#run = {
      startedAt: now,
      isRegular: now - this.#regularEndedAt >= this.#periodMs - ROUNDING_MS,
    };
  }

  /** Most of the token is returned if nothing changed; the sync that continues an unfinished one uses it. */
  ended(now: number, outcome: SyncOutcome): void {
    const { startedAt, isRegular } = this.#run!;
    const durationMs = now - startedAt;
    this.#run = undefined;
    this.#countedFrom = now;
    if (outcome === "unfinished") this.#creditMs += this.#periodMs;
    else if (outcome === "unchanged") {
      this.#creditMs += Math.max(0, this.#periodMs - UNCHANGED_COST * durationMs);
    } else if (isRegular) this.#regularEndedAt = now;
    else {
      const most = Math.min(this.#periodMs, this.#creditMs + durationMs);
      this.#creditMs = Math.max(this.#creditMs, most);
    }
  }

  #creditAt(now: number): number {
    const earned = this.#run ? 0 : Math.max(0, now - this.#countedFrom);
    return Math.min(this.#capacityMs, this.#creditMs + earned);
  }
}
