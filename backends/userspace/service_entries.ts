import { isLoopback } from "../../lib/net/ip_address.ts";
import type { Protocol } from "../../lib/net/port.ts";
import type { Endpoint, EndpointKey } from "../../lib/proxy/endpoint.ts";
import type { ProxyPlan, SharedPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { serviceKey, type ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import {
  endpointListsOf,
  type LoopPart,
  loopReason,
  NO_PART,
  withoutEndpoints,
} from "./endpoint_loops.ts";
import type { HealthMonitor } from "./health/health_monitor.ts";
import { type ServiceAddress, serviceAddresses, socketKey } from "./listeners.ts";
import { forEachInSlices } from "../../lib/os/time_slice.ts";
import { systemErrorOf } from "../../lib/os/socket_errors.ts";
import {
  MORE_ADDRESSES,
  type ServiceEntry,
  type SocketTable,
  type SocketTableContext,
} from "./socket_table.ts";

interface ServiceEntriesContext extends SocketTableContext {
  readonly entries: Map<ServicePortKey, ServiceEntry>;
  readonly sockets: SocketTable;
  readonly health: HealthMonitor;
}

/** The address in quarantine for looping endpoints, while other endpoints serve. */
const ENDPOINTS = "endpoints";

const SCTP_REASON =
  "Cannot forward SCTP: Deno has no SCTP sockets; use a kernel mode for this Service";

/**
 * Steps of a sync, for one ServicePort after another. All that changed are prepared before the first is
 * served: an endpoint of one may be an address of another.
 */
export class ServiceEntries {
  readonly #context: ServiceEntriesContext;

  constructor(context: ServiceEntriesContext) {
    this.#context = context;
  }

  /**
   * Forwards by a plan; addresses that are not known yet count as local. Returns how many ServicePorts
   * were looked at.
   */
  async update(
    plan: ProxyPlan,
    { keys, removed }: {
      readonly keys: ReadonlySet<ServicePortKey>;
      readonly removed: Iterable<ServicePortKey>;
    },
  ): Promise<number> {
    const { clock, endpointLoops } = this.#context.forwarding;
    for (const key of removed) this.#remove(key);
    await forEachInSlices(clock, keys, (key) => this.#prepare(key, plan));
    const affected = endpointLoops.takeAffected();
    const all = affected.size === 0 ? keys : new Set([...keys, ...affected]);
    await forEachInSlices(clock, all, (key) => this.#serve(key, plan.shared));
    return all.size;
  }

  /**
   * Leaves out ServicePorts whose retry can open no socket: those that have used up their share of
   * listening sockets and did not change. They may have 100,000 addresses.
   */
  withoutWaiting(
    keys: ReadonlySet<ServicePortKey>,
    { services }: ProxyPlan,
  ): ReadonlySet<ServicePortKey> {
    const waiting = new Set<ServicePortKey>();
    for (const { key } of this.#context.quarantine) {
      if (keys.has(key) && this.#isWaiting(key, services.get(key))) waiting.add(key);
    }
    return waiting.size === 0 ? keys : keys.difference(waiting);
  }

  /** Applies the places of addresses: endpoints at addresses that are not local lead elsewhere. */
  async move(plan: ProxyPlan, keys: Iterable<ServicePortKey>): Promise<void> {
    await forEachInSlices(this.#context.forwarding.clock, keys, (key) => this.#place(key));
    await this.serveAffected(plan);
  }

  /** Applies newly found endpoints that lead back. Returns the number of ServicePorts with one. */
  async serveAffected({ shared }: ProxyPlan): Promise<number> {
    const { clock, endpointLoops } = this.#context.forwarding;
    const affected = endpointLoops.takeAffected();
    await forEachInSlices(clock, affected, (key) => this.#serve(key, shared));
    return affected.size;
  }

  /** Takes a ServicePort of the plan, and its addresses into use. */
  #prepare(key: ServicePortKey, { services, shared }: ProxyPlan): void {
    const { addresses, entries, forwarders } = this.#context;
    const plan = services.get(key);
    if (!plan) return;
    let entry = entries.get(key);
    if (!entry) {
      const { protocol } = plan;
      const forwarder = protocol === "SCTP" ? undefined : forwarders.create({ ...plan, protocol });
      entry = { plan, served: plan, wanted: [], addresses: [], part: NO_PART, forwarder };
      entries.set(key, entry);
    }
    const before = entry.wanted;
    entry.plan = plan;
    // Without a forwarder there is nothing to listen with, and no address is needed.
    entry.wanted = entry.forwarder ? serviceAddresses(plan, shared) : [];
    for (const { address, role } of entry.wanted) {
      if (role === "NodePort") continue;
      addresses.retain({ address, role, service: serviceKey(plan.name) });
      addresses.retry(address);
    }
    this.#release(before);
    this.#place(key);
  }

  #isWaiting(key: ServicePortKey, plan: ServicePlan | undefined): boolean {
    const { entries, forwarding: { openFiles }, quarantine } = this.#context;
    if (!plan || !quarantine.has(key, MORE_ADDRESSES)) return false;
    const entry = entries.get(key);
    // The lists differ if endpoints lead back, which may end, and after an update that failed.
    return entry?.plan === plan && entry.addresses === entry.wanted &&
      !openFiles.mayListen(serviceKey(plan.name), this.#context.sockets.filesOf(plan));
  }

  #place(key: ServicePortKey): void {
    const { addresses, entries } = this.#context;
    const entry = entries.get(key);
    if (!entry?.forwarder) return;
    this.#take(entry, {
      frontends: entry.wanted.filter(({ role, address }) =>
        role === "NodePort" || (addresses.placeOf(address)?.kind ?? "local") === "local"
      ),
      endpoints: endpointListsOf(entry.plan),
    });
  }

  /** Claims the sockets of a ServicePort and forwards by its plan, without endpoints that lead back. */
  #serve(key: ServicePortKey, shared: SharedPlan): void {
    const { entries, health, quarantine, sockets } = this.#context;
    const entry = entries.get(key);
    if (!entry) return;
    const { plan, wanted } = entry;
    const looped = entry.forwarder ? this.#findLooped(plan) : new Map();
    const served = looped.size === 0 ? plan : withoutEndpoints(plan, looped);
    const addresses = served === plan ? wanted : serviceAddresses(served, shared);
    sockets.claim(key, { from: entry.addresses, to: addresses });
    entry.addresses = addresses;
    quarantine.delete(key);
    if (!entry.forwarder) quarantine.add({ key, reason: SCTP_REASON });
    if (looped.size > 0) this.#quarantineLooped(entry, loopReason(looped));
    this.#makeRoom(plan);
    if (entry.forwarder) health.follow(served);
    if (entry.served === served) return;
    entry.served = served;
    entry.forwarder?.update(served);
  }

  /** Forgets a ServicePort. */
  #remove(key: ServicePortKey): void {
    const { entries, forwarders, forwarding, health, quarantine, sockets } = this.#context;
    const entry = entries.get(key);
    if (!entry) return;
    entries.delete(key);
    health.forget(key);
    quarantine.delete(key);
    this.#release(entry.wanted);
    this.#take(entry, NO_PART);
    sockets.claim(key, { from: entry.addresses, to: [] });
    if (entry.forwarder) forwarders.remove(entry.forwarder);
    forwarding.traffic?.leave(entry.plan.name);
  }

  #take(entry: ServiceEntry, part: LoopPart): void {
    const { forwarders, forwarding: { endpointLoops } } = this.#context;
    endpointLoops.replace(entry.plan, { from: entry.part, to: part });
    forwarders.replaceFrontends(entry.plan, part);
    entry.part = part;
  }

  #release(addresses: readonly ServiceAddress[]): void {
    for (const { address, role } of addresses) {
      if (role !== "NodePort") this.#context.addresses.release(address);
    }
  }

  /**
   * Finds endpoints that lead back. A program of the host network may use a frontend's port on an
   * address of the node, such as an ingress controller with the load balancer's addresses. That
   * program is then the endpoint.
   */
  #findLooped(plan: ServicePlan): ReadonlyMap<EndpointKey, string> {
    const { addresses, forwarding: { endpointLoops } } = this.#context;
    const looped = endpointLoops.find(plan);
    if (looped.size === 0) return looped;
    for (const endpoint of endpointListsOf(plan).flat()) {
      if (!looped.has(endpoint.key) || !addresses.isNodes(endpoint.address)) continue;
      this.#findListener(endpoint, plan.protocol);
    }
    return endpointLoops.find(plan);
  }

  /** Finds out whether another program listens where this one could. */
  #findListener({ address: hostname, port }: Endpoint, protocol: Protocol): void {
    const { forwarding: { endpointLoops, engine }, sockets } = this.#context;
    if (sockets.has(socketKey(hostname, port, protocol))) return;
    let isForeign = false;
    try {
      const at = { hostname, port };
      (protocol === "UDP" ? engine.listenUdp(at) : engine.listenTcp(at)).close();
    } catch (error) {
      isForeign = systemErrorOf(error) === "EADDRINUSE";
    }
    endpointLoops.setForeign({ hostname, port }, { protocol, isForeign });
  }

  /** Quarantines ServicePorts, or single addresses, without remaining endpoints. */
  #quarantineLooped({ plan: { key }, wanted, addresses }: ServiceEntry, reason: string): void {
    const { quarantine } = this.#context;
    if (!addresses.some(({ open }) => open)) return quarantine.add({ key, reason });
    const closed = wanted.filter(({ open }, index) => open && !addresses[index]?.open);
    if (closed.length === 0) return quarantine.add({ key, address: ENDPOINTS, reason });
    for (const { socket } of closed) quarantine.add({ key, address: socket, reason });
  }

  /** A program that is an endpoint has its address for itself, also before it is started. */
  #makeRoom(plan: ServicePlan): void {
    for (const list of endpointListsOf(plan)) {
      for (const endpoint of list) {
        if (isLoopback(endpoint.address)) this.#context.sockets.makeRoom(endpoint, plan.protocol);
      }
    }
  }
}
