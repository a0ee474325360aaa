import type { FinishedSync } from "../../controller/loop_parts.ts";
import type { ProxyMetrics } from "../../metrics/proxy_metrics.ts";
import type { Backend } from "../../proxy/backend.ts";
import { contestedItems } from "../../proxy/frontend_owners.ts";
import type { Quarantined, SyncReport } from "../../proxy/data_plane.ts";
import type { PlanChanges, ProxyPlan } from "../../proxy/proxy_plan.ts";
import type { ServicePortKey } from "../../proxy/service_port_name.ts";
import type { ProxyPipeline } from "./proxy_pipeline.ts";
import type { SyncObserver } from "./sync_observer.ts";

/** The metrics of syncs. */
export type SyncMetrics = Pick<
  ProxyMetrics,
  "syncQueued" | "syncFinished" | "syncSucceeded" | "syncFailed"
>;

/** The followers of one IP family's syncs. */
export interface SyncFollowerDependencies {
  readonly metrics: SyncMetrics;
  readonly backend: Backend;
  /** Called for each sync, in this order. */
  readonly observers: readonly SyncObserver[];
}

/** Follows the syncs of one IP family. */
export class ServiceSyncFollower {
  readonly #dependencies: SyncFollowerDependencies;
  readonly #pipeline: ProxyPipeline;
  /** Frontends that another ServicePort owns, by ServicePort. */
  readonly #contested = new Map<ServicePortKey, readonly Quarantined[]>();

  constructor(dependencies: SyncFollowerDependencies, pipeline: ProxyPipeline) {
    this.#dependencies = dependencies;
    this.#pipeline = pipeline;
  }

  async syncing(plan: ProxyPlan, changes: PlanChanges): Promise<void> {
    const { observers, backend } = this.#dependencies;
    for (const observer of observers) await observer.syncing?.(backend.family, plan, changes);
  }

  synced(
    { plan, changes, report, at }: FinishedSync<ProxyPlan, PlanChanges, SyncReport>,
  ): readonly Quarantined[] {
    const { metrics, observers, backend: { family } } = this.#dependencies;
    const triggerTimes = this.#pipeline.confirmSynced();
    this.#noteContested(plan, changes);
    const quarantined = [...report.quarantined, ...[...this.#contested.values()].flat()];
    metrics.syncSucceeded(family, {
      at,
      quarantined: quarantined.length,
      programmingSeconds: triggerTimes.map((trigger) => Math.max(0, at - trigger) / 1000),
      noLocalEndpoints: this.#pipeline.noLocalEndpoints(),
      ...(report.rules && { rules: report.rules }),
    });
    for (const observer of observers) {
      observer.quarantined?.(family, quarantined);
      observer.synced(family, plan, changes);
    }
    return quarantined;
  }

  #noteContested({ services }: ProxyPlan, { removed, upserted }: PlanChanges): void {
    for (const key of removed.keys()) this.#contested.delete(key);
    for (const key of upserted) {
      const plan = services.get(key);
      if (plan?.contested) this.#contested.set(key, contestedItems(plan));
      else this.#contested.delete(key);
    }
  }

  failed(): void {
    const { metrics, backend } = this.#dependencies;
    metrics.syncFailed(backend.family);
  }

  finished(figures: { readonly seconds: number; readonly full?: boolean }): void {
    const { metrics, backend } = this.#dependencies;
    metrics.syncFinished(backend.family, figures);
  }
}
