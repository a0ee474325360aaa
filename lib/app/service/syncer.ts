/**
 * One sync, from drained trackers to a data plane that holds the plan. Ordering only: what has to
 * hold is decided in `lib/proxy`, how it is spelt in `backends/`.
 *
 * @module
 */
import type { Logger } from "../../log/logger.ts";
import { RecentTexts } from "../../log/recent_texts.ts";
import type { SyncMetrics } from "./sync_metrics.ts";
import type { SyncObserver } from "./sync_observer.ts";
import type { ProxyHealth } from "../../health/proxy_health.ts";
import { messageOf } from "../../log/message_of.ts";
import type { Clock } from "../../os/clock.ts";
import type { Backend } from "../../proxy/backend.ts";
import type { Quarantined, SyncReport } from "../../proxy/data_plane.ts";
import { ContestedAddresses } from "../../proxy/contested_addresses.ts";
import type { ObjectProblem } from "../../proxy/problem.ts";
import type { PlanChanges } from "../../proxy/proxy_plan.ts";
import { SyncFailure } from "../../proxy/sync_failure.ts";
import type { ChangeRecorder, SyncTimes } from "../changes/change_recorder.ts";
import type { ProxyPipeline } from "./proxy_pipeline.ts";
import type { RunOutcome } from "../../sync/sync_runner.ts";

/** What a sync needs. */
interface SyncerDependencies {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly metrics: SyncMetrics;
  readonly health: ProxyHealth;
  readonly backend: Backend;
  /** Told of each sync, in this order. */
  readonly observers: readonly SyncObserver[];
  /** Called after the first sync that succeeded, and after the first one of a plan that was no part. */
  readonly onFirstSync: () => void;
  /** Writes down what each sync brought into effect. */
  readonly recorder?: Pick<ChangeRecorder, "applied" | "failed">;
}

/** How the last successful sync went, for `status`. */
interface LastSync {
  /** Milliseconds since 1970. */
  readonly at: number;
  readonly durationMs: number;
  readonly report: SyncReport;
}

/** Runs syncs of one IP family. The caller has one in flight at most. */
export class Syncer {
  readonly #dependencies: SyncerDependencies;
  readonly #pipeline: ProxyPipeline;
  readonly #told: RecentTexts;
  /** Only where the backend can't tell by itself. */
  readonly #contested: ContestedAddresses | undefined;
  #quarantined: readonly Quarantined[] = [];
  #lastSync: LastSync | undefined;
  #isComplete = false;
  #failures = 0;
  #lastError: string | undefined;

  constructor(dependencies: SyncerDependencies, pipeline: ProxyPipeline) {
    const logger = dependencies.logger.with({ component: "syncer" });
    this.#dependencies = { ...dependencies, logger };
    this.#told = new RecentTexts(dependencies);
    this.#pipeline = pipeline;
    if (dependencies.backend.usesConntrack) this.#contested = new ContestedAddresses();
  }

  /** Whether a plan of all objects has been synced. */
  get isComplete(): boolean {
    return this.#isComplete;
  }

  get lastSync(): LastSync | undefined {
    return this.#lastSync;
  }

  /** Failed syncs since the last good one, and why the newest of them failed. */
  get failure(): { readonly count: number; readonly error?: string } {
    return {
      count: this.#failures,
      ...(this.#lastError !== undefined && { error: this.#lastError }),
    };
  }

  get quarantined(): readonly Quarantined[] {
    return this.#quarantined;
  }

  /**
   * Brings the data plane up to date. Never throws: a failure is logged, counted, and its changes
   * come again with the next ones.
   */
  async sync(): Promise<RunOutcome> {
    const { clock, backend, metrics, observers } = this.#dependencies;
    const startedAt = clock.now();
    const { changes, problems } = await this.#pipeline.collectChanges(
      this.#quarantined.map(({ key }) => key),
    );
    this.#report(problems);
    const times: SyncTimes = { startedAt, plannedAt: clock.now() };
    let full: boolean | undefined;
    try {
      for (const observer of observers) {
        await observer.syncing?.(backend.family, this.#pipeline.plan, changes);
      }
      const report = await backend.sync(this.#pipeline.plan, changes);
      full = report.full;
      this.#succeeded(report, { durationMs: clock.now() - startedAt, changes, times });
      if (report.quarantined.length > 0) return "retry";
      return Object.keys(report.operations).length === 0 ? "unchanged" : "done";
    } catch (error) {
      if (error instanceof SyncFailure) full = error.full;
      this.#failed(error, times);
      return "retry";
    } finally {
      const seconds = (clock.now() - startedAt) / 1000;
      metrics.syncFinished(backend.family, { seconds, ...(full !== undefined && { full }) });
    }
  }

  #succeeded(
    report: SyncReport,
    { durationMs, changes, times }: {
      readonly durationMs: number;
      readonly changes: PlanChanges;
      readonly times: SyncTimes;
    },
  ): void {
    const { clock, logger, metrics, health, backend, observers, recorder } = this.#dependencies;
    const at = clock.wallNow();
    const triggerTimes = this.#pipeline.confirmSynced();
    this.#failures = 0;
    this.#lastError = undefined;
    const isFirst = this.#lastSync === undefined || !this.#isComplete && !changes.isPartial;
    this.#isComplete ||= !changes.isPartial;
    this.#lastSync = { at, durationMs, report };
    health.synced(backend.family);
    this.#contested?.update(this.#pipeline.plan, changes);
    const quarantined = [...report.quarantined, ...this.#contested?.losers ?? []];
    metrics.syncSucceeded(backend.family, {
      at,
      quarantined: quarantined.length,
      programmingSeconds: triggerTimes.map((trigger) => Math.max(0, at - trigger) / 1000),
      noLocalEndpoints: this.#pipeline.noLocalEndpoints(),
      ...(report.rules && { rules: report.rules }),
    });
    this.#tellQuarantine(quarantined);
    recorder?.applied(times, { report, quarantined });
    for (const observer of observers) {
      observer.synced(backend.family, this.#pipeline.plan, changes);
    }
    if (isFirst) this.#dependencies.onFirstSync();
    const { services, full, operations } = report;
    logger.verbose(2, "Synced proxy rules", {
      services,
      full,
      operations,
      ms: Math.round(durationMs),
    });
  }

  #failed(error: unknown, times: SyncTimes): void {
    const { logger, metrics, backend, recorder } = this.#dependencies;
    this.#failures++;
    this.#lastError = messageOf(error);
    recorder?.failed(times, this.#lastError);
    metrics.syncFailed(backend.family);
    logger.error(
      "Cannot sync proxy rules; the last applied state stays and the changes are tried again",
      {
        error,
        failures: this.#failures,
      },
    );
  }

  /** Says once when a ServicePort goes into quarantine and once when it comes out. */
  #tellQuarantine(now: readonly Quarantined[]): void {
    const { logger } = this.#dependencies;
    const before = new Set(this.#quarantined.map(describe));
    const after = new Set(now.map(describe));
    const keys = new Set(now.map(({ key }) => key));
    for (const entry of now) {
      if (before.has(describe(entry))) continue;
      const { key, address, reason } = entry;
      logger.warn("Service port is in quarantine; it is tried again, all others work", {
        servicePort: key,
        ...(address !== undefined && { address }),
        reason,
      });
    }
    for (const entry of this.#quarantined) {
      if (after.has(describe(entry)) || keys.has(entry.key)) continue;
      logger.info("Service port is out of quarantine", { servicePort: entry.key });
    }
    this.#quarantined = now;
  }

  #report(problems: readonly ObjectProblem[]): void {
    for (const problem of problems) {
      // An object that is made anew every second has its faults each time.
      if (!this.#told.isNews(JSON.stringify(problem))) continue;
      const { message, ...fields } = problem;
      this.#dependencies.logger.warn(message, fields);
    }
  }
}

function describe({ key, address, reason }: Quarantined): string {
  return `${key} ${address ?? ""} ${reason}`;
}
