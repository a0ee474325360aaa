/**
 * Which Services have a health check node port, and how many endpoints each has on this node.
 *
 * @module
 */
import type { IpAddress, IpFamily } from "../net/ip_address.ts";
import type { Port } from "../net/port.ts";
import type { PlanChanges, ProxyPlan } from "../proxy/proxy_plan.ts";
import type { ServicePlan } from "../proxy/service_plan.ts";
import {
  type NamespacedName,
  type ServiceKey,
  serviceKey,
  type ServicePortKey,
} from "../proxy/service_port_name.ts";

/** A Service that load balancers check on this node. Both families share it, and its port. */
export interface CheckedService {
  readonly name: NamespacedName;
  readonly port: Port;
  /** Distinct addresses of ready endpoints on this node, for each family that has the Service. */
  readonly localEndpoints: ReadonlyMap<IpFamily, number>;
}

/** What is kept of a Service: the plans of its ports, from which it is counted anew. */
interface Row extends CheckedService {
  port: Port;
  readonly localEndpoints: Map<IpFamily, number>;
  readonly plans: Map<IpFamily, Map<ServicePortKey, ServicePlan>>;
}

/**
 * Follows the plans of both families. Costs what changed, whatever the number of Services.
 *
 * The port is a field of the Service, not of a family: the two families hear of a change one after
 * the other, and the one that heard last is right.
 */
export class ServiceHealthTable {
  readonly #rows = new Map<ServiceKey, Row>();

  get(service: ServiceKey): CheckedService | undefined {
    return this.#rows.get(service);
  }

  keys(): Iterable<ServiceKey> {
    return this.#rows.keys();
  }

  /** Takes in what a sync brought about and returns the Services that it touched. */
  update(family: IpFamily, plan: ProxyPlan, changes: PlanChanges): ReadonlySet<ServiceKey> {
    const touched = new Set<ServiceKey>();
    for (const { name, key } of changes.removed.values()) {
      if (this.#drop(family, serviceKey(name), key)) touched.add(serviceKey(name));
    }
    for (const key of changes.upserted) {
      const servicePlan = plan.services.get(key);
      if (servicePlan === undefined) continue;
      // The first sync comes with every ServicePort: those that are not checked need no key.
      if (this.#rows.size === 0 && servicePlan.healthCheckNodePort === undefined) continue;
      const service = serviceKey(servicePlan.name);
      if (this.#set(family, service, servicePlan)) touched.add(service);
    }
    for (const service of touched) this.#settle(family, service);
    return touched;
  }

  /** Returns whether there was something to take away. */
  #drop(family: IpFamily, service: ServiceKey, key: ServicePortKey): boolean {
    return this.#rows.get(service)?.plans.get(family)?.delete(key) ?? false;
  }

  /** Returns whether the Service is checked, or was until now. */
  #set(family: IpFamily, service: ServiceKey, plan: ServicePlan): boolean {
    const { healthCheckNodePort: port, name: { namespace, name } } = plan;
    if (port === undefined) return this.#drop(family, service, plan.key);
    let row = this.#rows.get(service);
    if (row === undefined) {
      row = { name: { namespace, name }, port, localEndpoints: new Map(), plans: new Map() };
      this.#rows.set(service, row);
    }
    row.port = port;
    const plans = row.plans.get(family);
    if (plans) plans.set(plan.key, plan);
    else row.plans.set(family, new Map([[plan.key, plan]]));
    return true;
  }

  /** Counts, and forgets a Service of which nothing is left. */
  #settle(family: IpFamily, service: ServiceKey): void {
    const row = this.#rows.get(service);
    const plans = row?.plans.get(family);
    if (row === undefined || plans === undefined) return;
    if (plans.size > 0) {
      row.localEndpoints.set(family, countLocalReady(plans.values()));
      return;
    }
    row.plans.delete(family);
    row.localEndpoints.delete(family);
    if (row.plans.size === 0) this.#rows.delete(service);
  }
}

/** One pod behind three ports counts once; one that is terminating is not ready. */
function countLocalReady(plans: Iterable<ServicePlan>): number {
  const addresses = new Set<IpAddress>();
  for (const { endpoints } of plans) {
    for (const { address, isLocal, ready } of endpoints) {
      if (isLocal && ready) addresses.add(address);
    }
  }
  return addresses.size;
}
