import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import type { ServicePortKey, ServicePortName } from "../../lib/proxy/service_port_name.ts";
import { claimsOf, type EntryId } from "./entry_id.ts";
import { isCounted } from "./counting_table.ts";

/** The frontends of all ServicePorts. */
export class CountedFrontends {
  readonly #plans = new Map<ServicePortKey, ServicePlan>();
  /** A frontend has one owner; while plans are exchanged one by one, the latest. */
  readonly #owners = new Map<EntryId, ServicePortKey>();
  readonly #dirty = new Set<EntryId>();

  /** Contains the frontends that were added or removed since the last {@linkcode settle}. */
  get dirty(): ReadonlySet<EntryId> {
    return this.#dirty;
  }

  /** Every ServicePort that has frontends. */
  get keys(): Iterable<ServicePortKey> {
    return this.#plans.keys();
  }

  /** Every frontend. */
  ids(): Iterable<EntryId> {
    return this.#owners.keys();
  }

  /** Whether the frontend exists. */
  has(id: EntryId): boolean {
    return this.#owners.has(id);
  }

  /** The ServicePort that owns a frontend. */
  ownerOf(id: EntryId): ServicePortName | undefined {
    const key = this.#owners.get(id);
    return key === undefined ? undefined : this.#plans.get(key)?.name;
  }

  /** Gives a ServicePort the frontends of a plan. */
  set(plan: ServicePlan): void {
    const { key } = plan;
    if (this.#plans.get(key) === plan) return;
    this.delete(key);
    this.#plans.set(key, plan);
    for (const id of claimsOf(plan)) {
      if (!isCounted(id)) continue;
      this.#owners.set(id, key);
      this.#dirty.add(id);
    }
  }

  /** Removes the frontends of a ServicePort. Returns its name, if it had any. */
  delete(key: ServicePortKey): ServicePortName | undefined {
    const plan = this.#plans.get(key);
    if (plan === undefined) return undefined;
    this.#plans.delete(key);
    for (const id of claimsOf(plan)) {
      if (!isCounted(id)) continue;
      if (this.#owners.get(id) === key) this.#owners.delete(id);
      this.#dirty.add(id);
    }
    return plan.name;
  }

  /** The frontends were written. */
  settle(): void {
    this.#dirty.clear();
  }
}
