/**
 * Observers of successful syncs: health check node ports, connection tracking, counters of
 * Services. They are called after each successful sync, outside of it: longer work belongs in a
 * task of its own.
 *
 * @module
 */
import type { IpFamily } from "../../net/ip_address.ts";
import type { Quarantined } from "../../proxy/data_plane.ts";
import type { PlanChanges, ProxyPlan } from "../../proxy/proxy_plan.ts";

/** Receives the state of one family's data plane. */
export interface SyncObserver {
  /**
   * Called before the data plane is changed, with the arguments of the later {@linkcode synced};
   * repeated after a failure. The sync waits for the result. Must not reject.
   */
  syncing?(family: IpFamily, plan: ProxyPlan, changes: PlanChanges): Promise<void>;
  /**
   * `plan` is a live view: it must be read before this returns, or its changes be waited for.
   * `changes` are those since the last call, whole even if syncs failed in between. Must not throw.
   */
  synced(family: IpFamily, plan: ProxyPlan, changes: PlanChanges): void;
  /** Called before {@linkcode synced} with everything in quarantine. Must not throw. */
  quarantined?(family: IpFamily, items: readonly Quarantined[]): void;
}
