/**
 * What the controllers of a run say about changes, for each other and for the change log. It costs
 * constant time: a first list has tens of thousands of objects.
 *
 * @module
 */
import type { KubeObject } from "../api/kind.ts";
import type { LoopId } from "../engine/loop_id.ts";
import type { SyncEvent, SyncListener } from "../engine/sync_event.ts";
import type { DriftFigures } from "../metrics/proxy_metrics.ts";
import type { IpFamily } from "../net/ip_address.ts";
import type { SyncReport } from "../proxy/data_plane.ts";
import type { PlanChanges, ProxyPlan } from "../proxy/proxy_plan.ts";
import type { EndpointHealthChange } from "../proxy/service_mode.ts";
import type { ServicePlan } from "../proxy/service_plan.ts";
import type { ServicePortKey } from "../proxy/service_port_name.ts";

/** A cause of a sync. */
export interface ObjectChange {
  /** A kind of the API, `addresses`, `machines` or `configuration`. */
  readonly kind: string;
  /** The object before and after; one of them may be absent, or both for a cause that is no object. */
  readonly previous?: KubeObject | undefined;
  readonly current?: KubeObject | undefined;
  /** @default {that of the object} */
  readonly name?: string;
  /** What happened. @default {none} */
  readonly words?: readonly string[];
}

/** An item that a sync changed, e.g. an address or a pod of this node. */
export interface NamedItem {
  readonly key: string;
  readonly words: readonly string[];
}

/** Follows the changes of one loop from the object to the data plane. */
export interface LoopListener<Item> extends SyncListener {
  /** An object changed. */
  seen(change: ObjectChange): void;
  /** A sync has begun with all changes seen so far. */
  drained(): void;
  /** The plan of an item has changed. */
  planned(previous: Item | undefined, next: Item | undefined): void;
}

/** One search for stale UDP flows. */
export interface FlowCleaning {
  /** Number of removed flows by ServicePort. */
  readonly removed: ReadonlyMap<ServicePortKey, number>;
  readonly tookMs: number;
  /** The reason of the failure. The deletion will be retried. */
  readonly error?: string;
}

/** Notes what changes in a run. `waitMs`: the longest wait of a change for its sync. */
export interface ChangeListener {
  followServices(loop: LoopId, waitMs: number): LoopListener<ServicePlan>;
  /** Follows any other loop. */
  follow(loop: LoopId, waitMs: number): LoopListener<NamedItem>;
  /** Objects of kube-relay were found missing or changed. */
  driftFound(loop: LoopId, figures: DriftFigures): void;
  /** UDP flows were removed that a sync made stale. */
  flowsCleaned(family: IpFamily, cleaning: FlowCleaning): void;
  /** Endpoints became unhealthy, were ejected, or returned. */
  healthChanged(family: IpFamily, changes: readonly EndpointHealthChange[]): void;
  /** Fields of the configuration changed; their values may be secret. */
  configurationChanged(fields: readonly string[]): void;
}

/** What happens in a loop of Services. */
export type ServiceSyncEvent = SyncEvent<ProxyPlan, PlanChanges, SyncReport>;

/**
 * Follows the loops of Services: health check node ports, connection tracking, announced addresses.
 * Longer work belongs in a task of its own.
 */
export type ServiceSyncListener = SyncListener<ServiceSyncEvent>;

/** A listener for successful syncs. */
export function whenSynced(
  synced: (family: IpFamily, plan: ProxyPlan, changes: PlanChanges) => void,
): ServiceSyncListener {
  return {
    on(event) {
      if (event.kind === "synced") synced(event.loop.family, event.plan, event.changes);
    },
  };
}
