/**
 * The syncs of Services, for what follows them: health check node ports, connection tracking, announced
 * addresses. Longer work belongs in a task of its own.
 *
 * @module
 */
import type { SyncEvent, SyncListener } from "../../engine/sync_event.ts";
import type { IpFamily } from "../../net/ip_address.ts";
import type { SyncReport } from "../../proxy/data_plane.ts";
import type { PlanChanges, ProxyPlan } from "../../proxy/proxy_plan.ts";

/** What happens in a loop of Services. */
export type ServiceSyncEvent = SyncEvent<ProxyPlan, PlanChanges, SyncReport>;

/** Follows the loops of Services. */
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
