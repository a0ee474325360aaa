/**
 * The ServicePorts whose plans differ and are not in effect yet. Bounded as the causes are.
 *
 * @module
 */
import type { ServicePlan } from "../../proxy/service_plan.ts";
import { type ServiceKey, serviceKey, type ServicePortKey } from "../../proxy/service_port_name.ts";
import type { ChangeAction, ChangeEffect } from "./change_entry.ts";
import { shortened } from "./change_parts.ts";
import { describePlan } from "./describe_plan.ts";
import { actionOf } from "./object_change.ts";

/** ServicePorts that are named. */
export const MOST_EFFECTS = 16;

/** The plan in effect, and the one that is to be. */
interface Difference {
  readonly previous: ServicePlan | undefined;
  readonly next: ServicePlan | undefined;
}

/** Plans that differ from those in effect. */
export class PendingEffects {
  readonly #named = new Map<ServicePortKey, Difference>();
  readonly #services = new Set<ServiceKey>();
  readonly #more = new Map<ChangeAction, number>();

  get isEmpty(): boolean {
    return this.#named.size === 0 && this.#more.size === 0;
  }

  /** ServicePorts that are only counted. */
  get more(): Readonly<Record<string, number>> {
    return Object.fromEntries(this.#more);
  }

  /** Takes that a ServicePort is planned otherwise than before. */
  add(previous: ServicePlan | undefined, next: ServicePlan | undefined): void {
    const plan = next ?? previous;
    if (plan === undefined) return;
    const known = this.#named.get(plan.key);
    if (known) this.#named.set(plan.key, { ...known, next });
    else if (this.#named.size < MOST_EFFECTS) {
      this.#named.set(plan.key, { previous, next });
      this.#services.add(serviceKey(plan.name));
    } else {
      const action = actionOf(previous, next);
      this.#more.set(action, (this.#more.get(action) ?? 0) + 1);
    }
  }

  /** Whether a ServicePort of this Service may be among them. */
  concern(service: ServiceKey): boolean {
    return this.#more.size > 0 || this.#services.has(service);
  }

  /** What is different, in words. */
  describe(): readonly ChangeEffect[] {
    return [...this.#named].flatMap(([key, { previous, next }]) => {
      // It came and went before any sync succeeded.
      if (previous === undefined && next === undefined) return [];
      const words = describePlan(previous, next);
      return [{ servicePort: shortened(key), action: actionOf(previous, next), words }];
    });
  }
}
