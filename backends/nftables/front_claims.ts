/**
 * Whose packets are counted at which front of a Service: an address and port, or a node port. Pure but
 * for its own state.
 *
 * @module
 */
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { ServicePortIndex } from "../../lib/proxy/service_port_index.ts";
import type { ServicePortKey, ServicePortName } from "../../lib/proxy/service_port_name.ts";
import { claimsOf, type EntryId } from "./claims.ts";
import { isCounted } from "./counting_table.ts";

/** The fronts of all ServicePorts. */
export class FrontClaims {
  readonly #plans = new Map<ServicePortKey, ServicePlan>();
  readonly #claims = new ServicePortIndex<EntryId>();
  readonly #dirty = new Set<EntryId>();

  /** Fronts that came or went since the last {@linkcode settle}, among others. */
  get dirty(): ReadonlySet<EntryId> {
    return this.#dirty;
  }

  /** Every ServicePort that has fronts. */
  get keys(): Iterable<ServicePortKey> {
    return this.#plans.keys();
  }

  /** Every front. */
  ids(): Iterable<EntryId> {
    return this.#claims.items;
  }

  /** Whether somebody is to be reached there. */
  has(id: EntryId): boolean {
    return this.#claims.has(id);
  }

  /** Who is reached there, as in the table that forwards. */
  ownerOf(id: EntryId): ServicePortName | undefined {
    const key = this.#claims.first(id);
    return key === undefined ? undefined : this.#plans.get(key)?.name;
  }

  /** Gives a ServicePort the fronts of a plan. */
  set(plan: ServicePlan): void {
    const { key } = plan;
    if (this.#plans.get(key) === plan) return;
    this.delete(key);
    this.#plans.set(key, plan);
    for (const id of claimsOf(plan)) {
      if (!isCounted(id)) continue;
      this.#claims.add(id, key);
      this.#dirty.add(id);
    }
  }

  /** Takes the fronts of a ServicePort away. Returns its name, if it had some. */
  delete(key: ServicePortKey): ServicePortName | undefined {
    const plan = this.#plans.get(key);
    if (plan === undefined) return undefined;
    this.#plans.delete(key);
    for (const id of claimsOf(plan)) {
      this.#claims.delete(id, key);
      if (isCounted(id)) this.#dirty.add(id);
    }
    return plan.name;
  }

  /** What there is was written. */
  settle(): void {
    this.#dirty.clear();
  }
}
