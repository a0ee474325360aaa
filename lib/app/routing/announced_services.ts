import { ROUTED_SERVICE } from "../../api/kinds/routed_service.ts";
import type { InformerSet } from "../../kube/informer_set.ts";
import type { Cidr } from "../../net/cidr.ts";
import type { IpAddress, IpFamily } from "../../net/ip_address.ts";
import type { Quarantined } from "../../engine/data_plane.ts";
import type { PlanChanges, ProxyPlan } from "../../proxy/proxy_plan.ts";
import {
  type ServiceKey,
  serviceKeyOfPort,
  type ServicePortKey,
} from "../../proxy/service_port_name.ts";
import type { ServicePlan } from "../../proxy/service_plan.ts";
import { type AnnouncedService, announcedServiceOf } from "../../routing/announced_service.ts";
import type { ServiceSyncEvent, ServiceSyncListener } from "../change_listener.ts";

/** Receives the Services whose addresses may have changed. */
export type ServiceListener = (
  keys: ReadonlySet<ServiceKey>,
  /** Those of them that have load balancer addresses, or had them. */
  withLoadBalancer: ReadonlySet<ServiceKey>,
) => void;

interface AnnouncedServicesOptions {
  /** Has the annotations of Services. */
  readonly informers: Pick<InformerSet, "of">;
  /** Whether an address can only be served after it was announced. @default {none} */
  readonly isExempt?: (address: IpAddress) => boolean;
}

interface KnownService {
  readonly ports: Map<string, ServicePlan>;
  /** Made when it is asked for. */
  announced?: AnnouncedService;
}

/**
 * The addresses that this node serves: those of the plans whose rules are in force, as the controller of
 * Services reports them after each sync.
 */
export class AnnouncedServices implements ServiceSyncListener {
  readonly #informers: Pick<InformerSet, "of">;
  readonly #isExempt: (address: IpAddress) => boolean;
  readonly #services = new Map<ServiceKey, KnownService>();
  readonly #ranges = new Map<IpFamily, readonly Cidr[]>();
  readonly #complete = new Set<IpFamily>();
  /** By port, of each family. */
  readonly #quarantined = new Map<IpFamily, ReadonlyMap<string, readonly Quarantined<string>[]>>();
  readonly #listeners: ServiceListener[] = [];
  readonly #onRanges: (() => void)[] = [];

  constructor({ informers, isExempt = () => false }: AnnouncedServicesOptions) {
    this.#informers = informers;
    this.#isExempt = isExempt;
  }

  /** The ranges of cluster IPs. */
  get serviceRanges(): readonly Cidr[] {
    return [...this.#ranges.values()].flat();
  }

  /** The families of which the rules of all Services have been in force once. */
  get complete(): ReadonlySet<IpFamily> {
    return this.#complete;
  }

  /** The Services that have rules in force. */
  get keys(): Iterable<ServiceKey> {
    return this.#services.keys();
  }

  /** Addresses may be exempt that were not, and the other way round. */
  onExemptions(): void {
    for (const known of this.#services.values()) delete known.announced;
  }

  /** Calls back after each change. */
  follow(listener: ServiceListener, onRanges: () => void): void {
    this.#listeners.push(listener);
    this.#onRanges.push(onRanges);
  }

  /** The addresses of a Service; `undefined` if no rule for it is in force. */
  of(key: ServiceKey): AnnouncedService | undefined {
    const known = this.#services.get(key);
    if (!known) return undefined;
    return known.announced ??= announcedServiceOf(
      [...known.ports].map(([id, plan]) => this.#served(id, plan)),
      this.#informers.of(ROUTED_SERVICE).get(key)?.metadata.annotations,
    );
  }

  /** The annotations of a Service changed. */
  touch(key: ServiceKey): void {
    const known = this.#services.get(key);
    if (!known) return;
    delete known.announced;
    this.#notify(new Set([key]), new Set(hasLoadBalancer(known) ? [key] : []));
  }

  on(event: ServiceSyncEvent): void {
    if (event.kind !== "synced") return;
    const { loop: { family }, quarantined, plan, changes } = event;
    this.#leaveOut(family, quarantined);
    this.#synced(family, plan, changes);
  }

  #synced(family: IpFamily, plan: ProxyPlan, changes: PlanChanges): void {
    const keys = new Set<ServiceKey>();
    const withLoadBalancer = new Set<ServiceKey>();
    const note = (port: ServicePortKey, found: ServicePlan | undefined) => {
      const key = serviceKeyOfPort(port);
      const known = this.#services.getOrInsertComputed(key, () => ({ ports: new Map() }));
      keys.add(key);
      if (hasLoadBalancer(known)) withLoadBalancer.add(key);
      const id = `${family} ${port}`;
      if (found) known.ports.set(id, found);
      else known.ports.delete(id);
      if (hasLoadBalancer(known)) withLoadBalancer.add(key);
      if (known.ports.size === 0) this.#services.delete(key);
      else delete known.announced;
    };
    for (const port of changes.removed.keys()) note(port, undefined);
    for (const port of changes.upserted) note(port, plan.services.get(port));
    if (!changes.isPartial) this.#complete.add(family);
    if (keys.size > 0) this.#notify(keys, withLoadBalancer);
    const ranges = this.#ranges.get(family) ?? [];
    this.#ranges.set(family, plan.shared.serviceCidrs);
    if (`${ranges}` !== `${plan.shared.serviceCidrs}`) {
      for (const each of this.#onRanges) {
        each();
      }
    }
  }

  /** Addresses in quarantine are not served. */
  #leaveOut(family: IpFamily, items: readonly Quarantined<string>[]): void {
    const before = this.#quarantined.get(family) ?? NOTHING;
    if (before.size === 0 && items.length === 0) return;
    const after = new Map<string, readonly Quarantined<string>[]>();
    for (const [key, entries] of Map.groupBy(items, ({ key }) => key)) {
      after.set(`${family} ${key}`, entries);
    }
    this.#quarantined.set(family, after);
    const changed = new Set(
      [...before.keys(), ...after.keys()].filter((id) =>
        textOf(before.get(id)) !== textOf(after.get(id))
      ),
    );
    for (const id of changed) {
      this.touch(serviceKeyOfPort(id.slice(family.length + 1) as ServicePortKey));
    }
  }

  #served(id: string, plan: ServicePlan): ServicePlan {
    const entries = [...this.#quarantined.values()].flatMap((items) => items.get(id) ?? []);
    if (entries.length === 0) return plan;
    const isServed = (vip: IpAddress) =>
      this.#isExempt(vip) ||
      !entries.some(({ address }) =>
        address === undefined || address.startsWith(`${vip}:`) || address.startsWith(`[${vip}]:`)
      );
    return {
      ...plan,
      externalIps: plan.externalIps.filter(isServed),
      loadBalancerVips: plan.loadBalancerVips.filter(isServed),
    };
  }

  #notify(keys: ReadonlySet<ServiceKey>, withLoadBalancer: ReadonlySet<ServiceKey>): void {
    for (const listener of this.#listeners) listener(keys, withLoadBalancer);
  }
}

const NOTHING: ReadonlyMap<string, readonly Quarantined<string>[]> = new Map();

function textOf(items: readonly Quarantined<string>[] = []): string {
  return items.map(({ address = "all" }) => address).sort().join();
}

function hasLoadBalancer({ ports }: KnownService): boolean {
  for (const { loadBalancerVips } of ports.values()) if (loadBalancerVips.length > 0) return true;
  return false;
}
