/**
 * The ServicePorts of one IP family with their forwarders and listening sockets.
 *
 * @module
 */
import { type IpAddress, isLoopback } from "../../lib/net/ip_address.ts";
import type { Protocol } from "../../lib/net/port.ts";
import { isPortRefused, listenProblem, systemErrorOf } from "../../lib/os/socket_errors.ts";
import { forEachInSlices } from "../../lib/os/time_slice.ts";
import type { Quarantined } from "../../lib/proxy/data_plane.ts";
import type { Endpoint, EndpointKey } from "../../lib/proxy/endpoint.ts";
import type { ProxyPlan, SharedPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { SetIndex } from "../../lib/net/set_index.ts";
import {
  type ServiceKey,
  serviceKey,
  type ServicePortKey,
} from "../../lib/proxy/service_port_name.ts";
import type { ServiceAddresses } from "./addresses/addresses.ts";
import { standInPorts } from "./addresses/stand_ins.ts";
import {
  endpointListsOf,
  type LoopPart,
  loopReason,
  NO_PART,
  withoutEndpoints,
} from "./endpoint_loops.ts";
import type { Forwarders, Place, RefusedSocket } from "./forwarders.ts";
import type { Forwarding } from "./forwarding.ts";
import type { HealthMonitor } from "./health/health_monitor.ts";
import { type ServiceAddress, serviceAddresses, type SocketKey, socketKey } from "./listeners.ts";

/** A ServicePort with its forwarder, which one for SCTP does not have. */
export interface ServiceEntry {
  /** As planned. */
  plan: ServicePlan;
  /** As forwarded: without the endpoints that lead back to this process. */
  served: ServicePlan | undefined;
  /** Every address of the plan, each in use. */
  wanted: AddressesBySocket;
  /** The addresses of its sockets: open ones have an endpoint. */
  addresses: AddressesBySocket;
  /** Its part of the {@linkcode EndpointLoops}. */
  part: LoopPart;
}

type AddressesBySocket = ReadonlyMap<SocketKey, ServiceAddress>;

interface OpenSocket {
  /** The address of the Service. */
  readonly at: SocketKey;
  owner: ServicePortKey;
  /** All ServicePorts that have it by server names, as they were told. */
  sharers: ReadonlyMap<ServicePortKey, ServiceAddress>;
  /** The Service whose share of open files it uses. */
  service: ServiceKey;
  readonly place: Place;
  /** Whether the place is not the Service's address. */
  readonly isStandIn: boolean;
  readonly protocol: Protocol;
}

const NO_ADDRESSES: AddressesBySocket = new Map();
const NO_OPERATIONS = { openedSockets: 0, closedSockets: 0, handedOverSockets: 0 };
type SocketOperations = typeof NO_OPERATIONS;

/** The address in quarantine for all that got no socket because a limit is reached. */
export const MORE_ADDRESSES = "addresses";
/** The address in quarantine for looping endpoints, while other endpoints serve. */
const ENDPOINTS = "endpoints";

const STAND_IN_PROBLEM = "every port of its stand-in is also the port of an endpoint";
const SCTP_REASON =
  "Cannot forward SCTP: Deno has no SCTP sockets; use a kernel mode for this Service";

/**
 * Steps of a sync, for one ServicePort after another and then for one socket after another. All
 * ServicePorts that changed are prepared before the first is served: an endpoint of one may be an address
 * of another.
 */
export class ServiceSockets {
  readonly entries = new Map<ServicePortKey, ServiceEntry>();
  readonly quarantine = new Quarantine();
  /** Operations on sockets in this sync. */
  #operations = { ...NO_OPERATIONS };
  readonly #forwarding: Forwarding;
  readonly #forwarders: Forwarders;
  readonly #addresses: ServiceAddresses;
  readonly #health: HealthMonitor;
  readonly #claims = new SetIndex<SocketKey, ServicePortKey>();
  readonly #open = new Map<SocketKey, OpenSocket>();
  readonly #closing = new Set<OpenSocket>();
  /** All sockets by the places where they are bound, until they are closed. */
  readonly #places = new Map<SocketKey, OpenSocket>();
  /** Sockets whose requests changed; kept when a sync fails. */
  readonly #touched = new Set<SocketKey>();

  constructor(
    forwarding: Forwarding,
    forwarders: Forwarders,
    addresses: ServiceAddresses,
    health: HealthMonitor,
  ) {
    this.#forwarding = forwarding;
    this.#forwarders = forwarders;
    this.#addresses = addresses;
    this.#health = health;
  }

  /** A sync begins, whose operations are counted in the result. */
  beginOperations(): Readonly<SocketOperations> {
    return this.#operations = { ...NO_OPERATIONS };
  }

  // ServicePorts.

  /**
   * Forwards by a plan; addresses that are not known yet count as local. Returns how many ServicePorts
   * were looked at.
   */
  async update(
    plan: ProxyPlan,
    keys: ReadonlySet<ServicePortKey>,
    removed: Iterable<ServicePortKey>,
  ): Promise<number> {
    const { clock, endpointLoops } = this.#forwarding;
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
    for (const { key, address } of this.quarantine) {
      const plan = address === MORE_ADDRESSES ? services.get(key) : undefined;
      const entry = this.entries.get(key);
      // The lists differ if endpoints lead back, which may end, and after an update that failed.
      const isWaiting = plan && entry?.plan === plan && entry.addresses === entry.wanted &&
        !this.#forwarding.openFiles.mayListen(serviceKey(plan.name), this.#filesOf(plan));
      if (isWaiting) waiting.add(key);
    }
    return waiting.size === 0 ? keys : keys.difference(waiting);
  }

  /** Applies the places of addresses: endpoints at addresses that are not local lead elsewhere. */
  async move(plan: ProxyPlan, keys: Iterable<ServicePortKey>): Promise<void> {
    await forEachInSlices(this.#forwarding.clock, keys, (key) => this.#place(key));
    await this.serveAffected(plan);
  }

  /** Applies newly found endpoints that lead back. Returns the number of ServicePorts with one. */
  async serveAffected({ shared }: ProxyPlan): Promise<number> {
    const { clock, endpointLoops } = this.#forwarding;
    const affected = endpointLoops.takeAffected();
    await forEachInSlices(clock, affected, (key) => this.#serve(key, shared));
    return affected.size;
  }

  /** Takes a ServicePort of the plan, and its addresses into use. */
  #prepare(key: ServicePortKey, { services, shared }: ProxyPlan): void {
    const plan = services.get(key);
    if (!plan) return;
    let entry = this.entries.get(key);
    if (!entry) {
      entry = {
        plan,
        served: undefined,
        wanted: NO_ADDRESSES,
        addresses: NO_ADDRESSES,
        part: NO_PART,
      };
      this.entries.set(key, entry);
    }
    const before = entry.wanted;
    entry.plan = plan;
    // Without a forwarder there is nothing to listen with, and no address is needed.
    entry.wanted = isForwarded(plan) ? addressesOf(plan, shared) : NO_ADDRESSES;
    for (const { address, role } of entry.wanted.values()) {
      if (role === "NodePort") continue;
      this.#addresses.retain({ address, role, service: serviceKey(plan.name) });
      this.#addresses.retry(address);
    }
    this.#release(before);
    this.#place(key);
  }

  #place(key: ServicePortKey): void {
    const entry = this.entries.get(key);
    if (!entry || !isForwarded(entry.plan)) return;
    this.#take(entry, {
      frontends: [...entry.wanted.values()].filter(({ role, address }) =>
        role === "NodePort" || (this.#addresses.placeOf(address)?.kind ?? "local") === "local"
      ),
      endpoints: endpointListsOf(entry.plan),
    });
  }

  /** Claims the sockets of a ServicePort and forwards by its plan, without endpoints that lead back. */
  #serve(key: ServicePortKey, shared: SharedPlan): void {
    const { quarantine } = this;
    const entry = this.entries.get(key);
    if (!entry) return;
    const { plan, wanted } = entry;
    const hasForwarder = isForwarded(plan);
    const looped = hasForwarder ? this.#findLooped(plan) : new Map();
    const served = looped.size === 0 ? plan : withoutEndpoints(plan, looped);
    const addresses = served === plan ? wanted : addressesOf(served, shared);
    this.#claim(key, entry.addresses, addresses);
    entry.addresses = addresses;
    quarantine.delete(key);
    if (!hasForwarder) quarantine.add({ key, reason: SCTP_REASON });
    if (looped.size > 0) this.#quarantineLooped(entry, loopReason(looped));
    for (const endpoint of endpointListsOf(plan).flat()) {
      if (!isLoopback(endpoint.address)) continue;
      // A program that is an endpoint has its address for itself, also before it is started.
      const taken = this.#places.get(socketKey(endpoint.address, endpoint.port, plan.protocol));
      if (taken?.isStandIn) this.#touched.add(taken.at);
    }
    if (hasForwarder) this.#health.follow(served);
    if (entry.served === served) return;
    entry.served = served;
    if (hasForwarder) this.#forwarders.apply({ op: "forward", plan: served });
  }

  /** Forgets a ServicePort. */
  #remove(key: ServicePortKey): void {
    const entry = this.entries.get(key);
    if (!entry) return;
    this.entries.delete(key);
    this.#health.forget(key);
    this.quarantine.delete(key);
    this.#release(entry.wanted);
    this.#take(entry, NO_PART);
    this.#claim(key, entry.addresses, NO_ADDRESSES);
    this.#forwarders.apply({ op: "remove", key });
  }

  #take(entry: ServiceEntry, part: LoopPart): void {
    this.#forwarding.endpointLoops.replace(entry.plan, { from: entry.part, to: part });
    const { plan: { key, protocol } } = entry;
    const { frontends } = part;
    if (protocol === "UDP") this.#forwarders.apply({ op: "frontends", key, frontends });
    entry.part = part;
  }

  #release(addresses: AddressesBySocket): void {
    for (const { address, role } of addresses.values()) {
      if (role !== "NodePort") this.#addresses.release(address);
    }
  }

  /**
   * Finds endpoints that lead back. A program of the host network may use a frontend's port on an
   * address of the node, such as an ingress controller with the load balancer's addresses. That
   * program is then the endpoint.
   */
  #findLooped(plan: ServicePlan): ReadonlyMap<EndpointKey, string> {
    const { endpointLoops } = this.#forwarding;
    const looped = endpointLoops.find(plan);
    if (looped.size === 0) return looped;
    for (const endpoint of endpointListsOf(plan).flat()) {
      if (!looped.has(endpoint.key) || this.#addresses.owns(endpoint.address)) continue;
      this.#findListener(endpoint, plan.protocol);
    }
    return endpointLoops.find(plan);
  }

  /** Finds out whether another program listens where this one could. */
  #findListener({ address: hostname, port }: Endpoint, protocol: Protocol): void {
    const { endpointLoops, engine } = this.#forwarding;
    if (this.#open.has(socketKey(hostname, port, protocol))) return;
    const at = { hostname, port };
    let isForeign = false;
    try {
      (protocol === "UDP" ? engine.listenUdp(at) : engine.listenTcp(at)).close();
    } catch (error) {
      isForeign = systemErrorOf(error) === "EADDRINUSE";
    }
    endpointLoops.setForeign(at, { protocol, isForeign });
  }

  /** Quarantines ServicePorts, or single addresses, without remaining endpoints. */
  #quarantineLooped({ plan: { key }, wanted, addresses }: ServiceEntry, reason: string): void {
    const { quarantine } = this;
    if (!addresses.values().some(({ open }) => open)) return quarantine.add({ key, reason });
    const closed = [...wanted.values()].filter(({ open, socket }) =>
      open && !addresses.get(socket)?.open
    );
    if (closed.length === 0) return quarantine.add({ key, address: ENDPOINTS, reason });
    for (const { socket } of closed) quarantine.add({ key, address: socket, reason });
  }

  // Sockets.

  /** Sockets to {@linkcode reconcile}. The current one may be reconciled during iteration. */
  get touched(): Iterable<SocketKey> {
    return this.#touched;
  }

  /** Has every socket looked at again, as when addresses may have moved. */
  touchAll(): void {
    for (const { addresses } of this.entries.values()) {
      for (const socket of addresses.keys()) this.#touched.add(socket);
    }
  }

  /** The socket that serves a ServicePort at a key; `undefined` = none. */
  serving(socket: SocketKey, key: ServicePortKey): OpenSocket | undefined {
    const open = this.#open.get(socket);
    return open?.owner === key || open?.sharers.get(key)?.open ? open : undefined;
  }

  /**
   * Opens, keeps or hands over one socket. One that is not wanted any more stays open until
   * {@linkcode closeUnwanted}, so that a Service which moves is never without a socket.
   */
  reconcile(socket: SocketKey): void {
    this.#touched.delete(socket);
    const open = this.#open.get(socket);
    const owner = this.#ownerOf(socket);
    for (const key of this.#claims.at(socket)) {
      // Those without an endpoint may be in quarantine for that.
      if (this.#isOpen(key, socket)) this.quarantine.delete(key, socket);
    }
    const entry = owner === undefined ? undefined : this.entries.get(owner);
    const at = entry?.addresses.get(socket);
    if (!entry || !at) return this.#retire(open);
    const wanted = this.#wantedAddress(at);
    const isFree = !open?.isStandIn || !this.#isEndpoint(open.place, entry.plan.protocol);
    if (open && wanted === open.place.address && isFree) {
      this.#assign(open, entry, at);
      return this.#share(open);
    }
    this.#retire(open);
    if (wanted !== undefined) {
      this.#listen(entry, at, wanted);
      return this.#share(this.#open.get(socket));
    }
    const place = this.#addresses.placeOf(at.address);
    const problem = place?.kind === "unavailable" ? place.reason : "it was not asked for";
    this.#quarantineSocket(socket, `Cannot make ${at.address} local: ${problem}`);
  }

  /** Closes the sockets that {@linkcode reconcile} found unwanted. */
  closeUnwanted(): void {
    for (const open of this.#closing) {
      this.#close(open);
      this.#operations.closedSockets++;
    }
    this.#closing.clear();
  }

  /** Closes all TCP sockets, or all. Connections that were accepted stay. */
  close(protocol?: "TCP"): void {
    for (const [key, open] of this.#open) {
      if (protocol === "TCP" && open.protocol !== "TCP") continue;
      this.#close(open);
      this.#open.delete(key);
    }
  }

  /** Quarantines what could not be opened after all; the threads that could close theirs. */
  fail(failures: readonly RefusedSocket[]): void {
    for (const { socket, message, code } of failures) {
      const open = this.#places.get(socket);
      if (open === undefined || this.#open.get(open.at) !== open) continue;
      const { owner, at, place, protocol } = open;
      this.#retire(open);
      if (!this.entries.get(owner)?.addresses.has(at)) continue;
      const error = Object.assign(new Error(message), { code });
      if (code === "EADDRINUSE") this.#setForeign(place, protocol, true);
      this.#quarantineSocket(at, `Cannot listen on ${at}: ${listenProblem(error, place)}`);
    }
  }

  /** Replaces the requests of a ServicePort. */
  #claim(
    key: ServicePortKey,
    from: AddressesBySocket,
    to: AddressesBySocket,
  ): void {
    for (const socket of from.keys()) {
      this.#claims.delete(socket, key);
      this.quarantine.delete(key, socket);
      this.#touched.add(socket);
    }
    for (const [socket, { open, names }] of to) {
      // Without endpoints, it still keeps its names from others.
      if (open || names) this.#claims.add(socket, key);
      this.#touched.add(socket);
    }
  }

  /** The ServicePort that has a socket: the first with an endpoint and room for a socket. */
  #ownerOf(socket: SocketKey): ServicePortKey | undefined {
    const [first, ...others] = [...this.#claims.at(socket)]
      .filter((key) => this.#isOpen(key, socket));
    if (others.length === 0) return first;
    const current = this.#open.get(socket)?.owner;
    return [first!, ...others].find((key) => {
      const { plan } = this.entries.get(key)!;
      return key === current ||
        this.#forwarding.openFiles.mayListen(serviceKey(plan.name), this.#filesOf(plan));
    }) ?? first;
  }

  #isOpen(key: ServicePortKey, socket: SocketKey): boolean {
    return this.entries.get(key)?.addresses.get(socket)?.open === true;
  }

  /** Sockets that a frontend takes. */
  #filesOf({ protocol }: { readonly protocol: Protocol }): number {
    return protocol === "TCP" ? this.#forwarders.threads : 1;
  }

  #close(open: OpenSocket): void {
    const socket = placeKey(open);
    this.#places.delete(socket);
    this.#forwarders.apply({ op: "close", socket });
    this.#forwarding.openFiles.giveListener(open.service, this.#filesOf(open));
  }

  #retire(open: OpenSocket | undefined): void {
    if (!open) return;
    this.#open.delete(open.at);
    this.#closing.add(open);
  }

  #setForeign({ address, port }: Place, protocol: Protocol, isForeign: boolean): void {
    const { endpointLoops } = this.#forwarding;
    endpointLoops.setForeign({ hostname: address, port }, { protocol, isForeign });
  }

  #isEndpoint({ address: hostname, port }: Place, protocol: Protocol): boolean {
    return this.#forwarding.endpointLoops.isEndpoint({ hostname, port }, protocol);
  }

  #wantedAddress({ role, address }: ServiceAddress): IpAddress | undefined {
    if (role === "NodePort") return address;
    const place = this.#addresses.placeOf(address);
    if (place?.kind === "standIn") return place.address;
    return place?.kind === "local" ? address : undefined;
  }

  #assign(open: OpenSocket, { plan, plan: { key } }: ServiceEntry, at: ServiceAddress): void {
    if (open.owner !== key) this.#operations.handedOverSockets++;
    open.owner = key;
    const service = serviceKey(plan.name);
    if (open.service !== service) {
      this.#forwarding.openFiles.moveListener(open.service, service, this.#filesOf(open));
      open.service = service;
    }
    if (at.names) return;
    this.#forwarders.apply({ op: "open", socket: placeKey(open), place: open.place, key, at });
  }

  /** Gives a socket that is shared by server names to those of its ServicePorts that changed. */
  #share(open: OpenSocket | undefined): void {
    if (!open) return;
    const { at: socket, place, sharers: before } = open;
    const sharers = new Map<ServicePortKey, ServiceAddress>();
    for (const key of this.#claims.at(socket)) {
      const at = this.entries.get(key)?.addresses.get(socket);
      if (at?.names) sharers.set(key, at);
    }
    open.sharers = sharers;
    const inPlace = { socket: placeKey(open), place };
    for (const key of before.keys()) {
      // The owner has all of it, if it has no names any more.
      if (sharers.has(key) || key === open.owner) continue;
      this.#forwarders.apply({ op: "leave", socket: placeKey(open), key });
    }
    for (const [key, at] of sharers) {
      if (before.get(key) !== at) this.#forwarders.apply({ op: "open", ...inPlace, key, at });
    }
  }

  #listen(
    { plan: { key: owner, name, protocol } }: ServiceEntry,
    at: ServiceAddress,
    wanted: IpAddress,
  ): void {
    const { openFiles } = this.#forwarding;
    const isStandIn = wanted !== at.address;
    const service = serviceKey(name);
    const files = this.#filesOf({ protocol });
    const refusal = openFiles.takeListener(service, files);
    if (refusal !== undefined) {
      // One item, not one for each address: a small Service may have 100,000 of them.
      return this.#quarantineSocket(
        at.socket,
        `Cannot listen on all addresses: ${refusal}`,
        MORE_ADDRESSES,
      );
    }
    let failure: unknown;
    for (const port of isStandIn ? standInPorts(service, { ...at, protocol }) : [at.port]) {
      const place = { address: wanted, port };
      if (isStandIn && this.#isEndpoint(place, protocol)) continue;
      const socket = socketKey(wanted, port, protocol);
      try {
        if (this.#places.has(socket)) {
          throw Object.assign(new Error("another Service has the place"), { code: "EADDRINUSE" });
        }
        this.#forwarders.apply({ op: "open", socket, place, key: owner, at });
        const sharers = new Map(at.names ? [[owner, at]] : []);
        const open = { at: at.socket, owner, sharers, service, place, isStandIn, protocol };
        this.#open.set(at.socket, open);
        this.#places.set(socket, open);
        this.#setForeign(place, protocol, false);
        this.#operations.openedSockets++;
        return;
      } catch (error) {
        failure ??= error;
        if (systemErrorOf(error) === "EADDRINUSE") this.#setForeign(place, protocol, true);
        if (!isPortRefused(error)) break;
      }
    }
    openFiles.giveListener(service, files);
    const problem = listenProblem(failure ?? STAND_IN_PROBLEM, { address: wanted, port: at.port });
    this.#quarantineSocket(at.socket, `Cannot listen on ${at.socket}: ${problem}`);
  }

  #quarantineSocket(socket: SocketKey, reason: string, address: string = socket): void {
    for (const key of this.#claims.at(socket)) this.quarantine.add({ key, address, reason });
  }
}

/** Deno has no sockets for SCTP. */
function isForwarded({ protocol }: Pick<ServicePlan, "protocol">): boolean {
  return protocol !== "SCTP";
}

function addressesOf(plan: ServicePlan, shared: SharedPlan): AddressesBySocket {
  return new Map(serviceAddresses(plan, shared).map((at) => [at.socket, at]));
}

function placeKey({ place: { address, port }, protocol }: OpenSocket): SocketKey {
  return socketKey(address, port, protocol);
}

/** ServicePorts, and addresses of them, that are in quarantine. */
class Quarantine {
  readonly #entries = new Map<ServicePortKey, Map<string | undefined, string>>();

  /** `address` is `undefined` when the whole ServicePort is concerned. */
  add({ key, address, reason }: Quarantined): void {
    this.#entries.getOrInsertComputed(key, () => new Map()).set(address, reason);
  }

  /** Lifts the quarantine of one address, or of the whole ServicePort with all its addresses. */
  delete(key: ServicePortKey, address?: string): void {
    const addresses = this.#entries.get(key);
    if (!addresses) return;
    addresses.delete(address);
    if (address === undefined || addresses.size === 0) this.#entries.delete(key);
  }

  has(key: ServicePortKey, address?: string): boolean {
    return this.#entries.get(key)?.has(address) ?? false;
  }

  /** The entries, grouped by ServicePort. */
  *[Symbol.iterator](): IterableIterator<Quarantined> {
    for (const [key, addresses] of this.#entries) {
      for (const [address, reason] of addresses) {
        yield address === undefined ? { key, reason } : { key, address, reason };
      }
    }
  }
}
