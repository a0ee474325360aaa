/** Events of loops. */
import type { ServiceSyncEvent } from "../../../lib/app/change_listener.ts";
import type { LoopId } from "../../../lib/engine/loop_id.ts";
import type { AppliedSync, SyncEvent } from "../../../lib/engine/sync_event.ts";
import type { IpFamily } from "../../../lib/net/ip_address.ts";
import type { PlanChanges, ProxyPlan } from "../../../lib/proxy/proxy_plan.ts";
import { serviceLoop } from "./builders.ts";

const TIMES = { startedAt: 0, plannedAt: 0 };

/** A successful sync of any loop. */
export function syncedEvent(loop: LoopId, isComplete = true): SyncEvent & AppliedSync {
  const report = { full: true, operations: {}, quarantined: [] };
  return {
    ...{ kind: "synced", loop, times: TIMES, plan: undefined, changes: {}, report },
    ...{ quarantined: [], at: 0, isComplete, seconds: 0 },
  };
}

/** A successful sync of Services, or the moment before. */
export function serviceSyncEvent(
  kind: "synced" | "syncing",
  family: IpFamily,
  plan: ProxyPlan,
  changes: PlanChanges,
  quarantined: readonly {
    readonly key: string;
    readonly address?: string;
    readonly reason: string;
  }[] = [],
): ServiceSyncEvent {
  const loop = serviceLoop(family);
  if (kind === "syncing") return { kind, loop, plan, changes };
  const report = { full: true, operations: {}, quarantined: [], services: 0 };
  return {
    ...{ kind, loop, times: TIMES, plan, changes, report },
    ...{ quarantined, at: 0, isComplete: changes.isPartial !== true, seconds: 0 },
  };
}
