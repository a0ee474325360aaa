/**
 * Brings what is wanted in step with a plan; nothing is written.
 *
 * @module
 */
import type { Clock } from "../../lib/os/clock.ts";
import type { Quarantined } from "../../lib/proxy/data_plane.ts";
import type { PlanChanges, ProxyPlan, SharedPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import { TimeSlice } from "../../lib/os/time_slice.ts";
import { refusedItem, type RefusedItems } from "./refused_items.ts";

/** What is wanted of a mode, by ServicePort. */
interface ServiceLayout {
  /** Gives a ServicePort what a plan says, and takes it out of quarantine. */
  set(plan: ServicePlan): void;
  delete(key: ServicePortKey): void;
  /** Leaves a ServicePort out, until it is set again. */
  quarantine(item: Quarantined): void;
  setShared(shared: SharedPlan): void;
}

/** What is brought in step, and who is to know. */
interface LayoutHolder {
  readonly layout: ServiceLayout;
  readonly refused: RefusedItems;
  readonly clock: Clock;
  /** Told of each ServicePort that was taken. */
  readonly changed?: (key: ServicePortKey) => void;
}

/** What has changed of a plan. */
export interface LayoutChanges {
  readonly changes: PlanChanges;
  /** The layout was made for this plan and has no ServicePort yet. */
  readonly isNew: boolean;
}

/**
 * Takes what has changed, or all of it into a layout that is new. What the kernel refused stays out
 * while it is too early to try it again. Costs what has changed.
 */
export async function takeChanges(
  { layout, refused, clock, changed }: LayoutHolder,
  plan: ProxyPlan,
  { changes, isNew }: LayoutChanges,
): Promise<void> {
  if (!isNew && changes.shared) layout.setShared(plan.shared);
  for (const key of changes.removed.keys()) {
    layout.delete(key);
    refused.forget(key);
    changed?.(key);
  }
  const slice = new TimeSlice(clock);
  for (const key of isNew ? plan.services.keys() : changes.upserted) {
    await slice.pause();
    const service = plan.services.get(key);
    if (service === undefined) continue;
    const refusal = refused.waitingFor(service, clock.now());
    if (refusal === undefined) layout.set(service);
    else layout.quarantine(refusedItem(clock, key, refusal));
    changed?.(key);
  }
}
