/**
 * Brings the ServicePorts that the userspace backend holds to those of a plan.
 *
 * @module
 */
import { isLoopback } from "../../lib/net/ip_address.ts";
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
import { type ServiceAddress, serviceAddresses } from "./listeners.ts";
import { createServiceEntry, type ServiceEntry } from "./service_entry.ts";
import type { SocketTable, SocketTableContext } from "./socket_table.ts";

/** What {@linkcode ServiceEntries} work with. */
export interface ServiceEntriesContext extends SocketTableContext {
  readonly entries: Map<ServicePortKey, ServiceEntry>;
  readonly sockets: SocketTable;
}

/** For what is in quarantine while other endpoints of the ServicePort serve. */
const ENDPOINTS = "endpoints";

const SCTP_REASON =
  "Cannot forward SCTP: Deno has no SCTP sockets; use a kernel mode for this Service";

/**
 * The steps of a sync, each for one ServicePort. All that changed are prepared before the first is
 * served: an endpoint of one may be an address of another.
 */
export class ServiceEntries {
  readonly #context: ServiceEntriesContext;

  constructor(context: ServiceEntriesContext) {
    this.#context = context;
  }

  /** Takes a ServicePort of the plan, and its addresses into use. */
  prepare(key: ServicePortKey, { services, shared }: ProxyPlan): void {
    const { addresses, entries, forwarding } = this.#context;
    const plan = services.get(key);
    if (!plan) return;
    let entry = entries.get(key);
    if (!entry) entries.set(key, entry = createServiceEntry(forwarding, plan));
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
    this.place(key);
  }

  /** Takes into account where the addresses of a ServicePort are; not yet known ones will be its own. */
  place(key: ServicePortKey): void {
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
  serve(key: ServicePortKey, shared: SharedPlan): void {
    const { entries, forwarding, quarantine, sockets } = this.#context;
    const entry = entries.get(key);
    if (!entry) return;
    const { plan, wanted } = entry;
    const looped = entry.forwarder ? forwarding.endpointLoops.find(plan) : new Map();
    const served = looped.size === 0 ? plan : withoutEndpoints(plan, looped);
    const addresses = served === plan ? wanted : serviceAddresses(served, shared);
    sockets.claim(key, { from: entry.addresses, to: addresses });
    entry.addresses = addresses;
    quarantine.delete(key);
    if (!entry.forwarder) quarantine.add({ key, reason: SCTP_REASON });
    if (looped.size > 0) this.#quarantineLooped(entry, loopReason(looped));
    this.#makeRoom(plan);
    if (entry.served === served) return;
    entry.served = served;
    entry.forwarder?.update(served);
  }

  /** Forgets a ServicePort. */
  remove(key: ServicePortKey): void {
    const { entries, forwarding, quarantine, sockets } = this.#context;
    const entry = entries.get(key);
    if (!entry) return;
    entries.delete(key);
    quarantine.delete(key);
    this.#release(entry.wanted);
    this.#take(entry, NO_PART);
    sockets.claim(key, { from: entry.addresses, to: [] });
    forwarding.traffic?.leave(entry.plan.name);
    // UDP flows end with the Service; TCP connections may finish, as they do with conntrack.
    if (entry.protocol === "UDP") entry.forwarder.close();
  }

  #take(entry: ServiceEntry, part: LoopPart): void {
    this.#context.forwarding.endpointLoops.replace(entry.plan, { from: entry.part, to: part });
    entry.part = part;
  }

  #release(addresses: readonly ServiceAddress[]): void {
    for (const { address, role } of addresses) {
      if (role !== "NodePort") this.#context.addresses.release(address);
    }
  }

  /** In quarantine is what nobody serves for want of endpoints: the ServicePort, or single addresses. */
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
