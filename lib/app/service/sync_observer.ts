/**
 * Who wants to know that a data plane holds a new plan: health check node ports, connection
 * tracking, counters of Services. Told after each successful sync, off its path: an observer that
 * has work to do does it in a task of its own.
 *
 * @module
 */
import type { IpFamily } from "../../net/ip_address.ts";
import type { PlanChanges, ProxyPlan } from "../../proxy/proxy_plan.ts";

/** Told of what one family's data plane holds now. */
export interface SyncObserver {
  /**
   * Called before the data plane is changed, with what {@linkcode synced} gets once that has
   * succeeded; after a failure it is called again. The sync waits for what it returns. Must not reject.
   */
  syncing?(family: IpFamily, plan: ProxyPlan, changes: PlanChanges): Promise<void>;
  /**
   * `plan` is a live view: it must be read before this returns, or its changes be waited for.
   * `changes` are those since the last call, whole even if syncs failed in between. Must not throw.
   */
  synced(family: IpFamily, plan: ProxyPlan, changes: PlanChanges): void;
}
