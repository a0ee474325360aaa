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

/** A Service with a health check node port. Both families share it and its port. */
export interface CheckedService {
  readonly name: NamespacedName;
  readonly port: Port;
  /** Distinct addresses of ready endpoints on this node, for each family of the Service. */
  readonly localEndpoints: ReadonlyMap<IpFamily, number>;
}

/** The plans of a Service's ports, from which the endpoints are counted again. */
interface Row extends CheckedService {
  port: Port;
  readonly localEndpoints: Map<IpFamily, number>;
  readonly plans: Map<IpFamily, Map<ServicePortKey, ServicePlan>>;
}

/**
 * Collects the Services with a health check node port, and counts their endpoints on this node.
 * Costs what changed, whatever the number of Services.
 *
 * The port is a field of the Service, not of a family: both families receive a change one after the
 * other, and the last one is right.
 */
export class ServiceHealthTable {
  readonly #rows = new Map<ServiceKey, Row>();

  get(service: ServiceKey): CheckedService | undefined {
    return this.#rows.get(service);
  }

  keys(): Iterable<ServiceKey> {
    return this.#rows.keys();
  }

  /** Takes the changes of a sync and returns the affected Services. */
  update(family: IpFamily, plan: ProxyPlan, changes: PlanChanges): ReadonlySet<ServiceKey> {
    const touched = new Set<ServiceKey>();
    for (const { name, key } of changes.removed.values()) {
      if (this.#drop(family, serviceKey(name), key)) touched.add(serviceKey(name));
    }
    for (const key of changes.upserted) {
      const servicePlan = plan.services.get(key);
      if (servicePlan === undefined) continue;
      // The first sync has every ServicePort: those without a check need no key.
      if (this.#rows.size === 0 && servicePlan.healthCheckNodePort === undefined) continue;
      const service = serviceKey(servicePlan.name);
      if (this.#set(family, service, servicePlan)) touched.add(service);
    }
    for (const service of touched) this.#settle(family, service);
    return touched;
  }

  /** Returns whether there was something to remove. */
  #drop(family: IpFamily, service: ServiceKey, key: ServicePortKey): boolean {
    return this.#rows.get(service)?.plans.get(family)?.delete(key) ?? false;
  }

  /** Returns whether the Service has a check, or had one until now. */
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

  /** Counts, and forgets a Service without plans. */
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

/** A pod behind three ports counts once; a terminating pod is not ready. */
function countLocalReady(plans: Iterable<ServicePlan>): number {
  const addresses = new Set<IpAddress>();
  for (const { endpoints } of plans) {
    for (const { address, isLocal, ready } of endpoints) {
      if (isLocal && ready) addresses.add(address);
    }
  }
  return addresses.size;
}
