import type { IpAddress } from "../../lib/net/ip_address.ts";
import type { Port, Protocol } from "../../lib/net/port.ts";
import {
  type ServiceKey,
  serviceKey,
  type ServicePortKey,
} from "../../lib/proxy/service_port_name.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import type { AddressBook } from "./address_book.ts";
import type { LoopPart } from "./endpoint_loops.ts";
import type { Forwarding } from "./forwarding.ts";
import { AddressFinder, type ServiceAddress, type SocketKey, socketKey } from "./listeners.ts";
import type { Quarantine } from "./quarantine.ts";
import type { FailedSocket, Forwarders, ServiceForwarder, ServiceSocket } from "./forwarders.ts";
import { ServicePortIndex } from "../../lib/proxy/service_port_index.ts";
import { isPortRefused, listenProblem, systemErrorOf } from "../../lib/os/socket_errors.ts";
import { standInPorts } from "./addresses/stand_ins.ts";

/** A ServicePort with its forwarder. */
export interface ServiceEntry {
  /** As planned. */
  plan: ServicePlan;
  /** As forwarded: without the endpoints that lead back to this process. */
  served: ServicePlan;
  /** Every address of the plan, each in use in the address book. */
  wanted: readonly ServiceAddress[];
  /** The addresses of its sockets: open ones have an endpoint. */
  addresses: readonly ServiceAddress[];
  /** Its part of the {@linkcode EndpointLoops}. */
  part: LoopPart;
  /** `undefined` for SCTP. */
  readonly forwarder: ServiceForwarder | undefined;
}

export interface SocketTableContext {
  readonly forwarding: Forwarding;
  readonly forwarders: Forwarders;
  readonly addresses: AddressBook;
  readonly quarantine: Quarantine;
  readonly entries: ReadonlyMap<ServicePortKey, ServiceEntry>;
}

/** The address and port where a socket is bound instead of the Service's. */
interface StandInPlace {
  readonly address: IpAddress;
  readonly port: Port;
}

/** A socket that serves a ServicePort. */
interface ServingSocket {
  readonly standIn: StandInPlace | undefined;
}

interface OpenSocket {
  owner: ServicePortKey;
  /** The Service whose share of open files it uses. */
  service: ServiceKey;
  /** The place of the socket, if it is not the Service's address. */
  readonly standIn: StandInPlace | undefined;
  readonly protocol: Protocol;
  readonly socket: ServiceSocket;
}

/** Counts of operations on sockets. */
export interface SocketOperations {
  openedSockets: number;
  closedSockets: number;
  handedOverSockets: number;
}

/** The address in quarantine for all that got no socket because a limit is reached. */
export const MORE_ADDRESSES = "addresses";

const STAND_IN_PROBLEM = "every port of its stand-in is also the port of an endpoint";

/** Opens and closes sockets to match the requests, one socket at a time. */
export class SocketTable {
  readonly #context: SocketTableContext;
  readonly #claims = new ServicePortIndex<SocketKey>();
  readonly #open = new Map<SocketKey, OpenSocket>();
  readonly #closing = new Set<OpenSocket>();
  readonly #finder = new AddressFinder();
  /** The sockets that are bound elsewhere, by where that is. */
  readonly #standIns = new Map<SocketKey, SocketKey>();
  /** Sockets whose requests changed; kept when a sync fails. */
  readonly #touched = new Set<SocketKey>();

  constructor(context: SocketTableContext) {
    this.#context = context;
  }

  /** Sockets to {@linkcode reconcile}. The current one may be reconciled during iteration. */
  get touched(): Iterable<SocketKey> {
    return this.#touched;
  }

  /** Replaces the requests of a ServicePort. */
  claim(key: ServicePortKey, { from, to }: {
    readonly from: readonly ServiceAddress[];
    readonly to: readonly ServiceAddress[];
  }): void {
    for (const { socket } of from) {
      this.#claims.delete(socket, key);
      this.#context.quarantine.delete(key, socket);
      this.#touched.add(socket);
    }
    for (const { socket, open } of to) {
      if (open) this.#claims.add(socket, key);
      this.#touched.add(socket);
    }
  }

  /** Has every socket looked at again, as when addresses may have moved. */
  touchAll(): void {
    for (const { addresses } of this.#context.entries.values()) {
      for (const { socket } of addresses) this.#touched.add(socket);
    }
  }

  /** Moves a stand-in to another port if an endpoint uses its place. */
  makeRoom({ address, port }: StandInPlace, protocol: Protocol): void {
    const socket = this.#standIns.get(socketKey(address, port, protocol));
    if (socket !== undefined) this.#touched.add(socket);
  }

  /** Whether a socket is open. */
  has(socket: SocketKey): boolean {
    return this.#open.has(socket);
  }

  /** The socket that serves a ServicePort at a key; `undefined` = none. */
  serving(socket: SocketKey, key: ServicePortKey): ServingSocket | undefined {
    const open = this.#open.get(socket);
    return open?.owner === key ? open : undefined;
  }

  /**
   * Opens, keeps or hands over one socket. One that is not wanted any more stays open until
   * {@linkcode closeUnwanted}, so that a Service which moves is never without a socket.
   */
  reconcile(socket: SocketKey, operations: SocketOperations): void {
    const { quarantine, entries } = this.#context;
    this.#touched.delete(socket);
    const open = this.#open.get(socket);
    const owner = this.#claims.first(socket);
    if (owner !== undefined) quarantine.delete(owner, socket);
    const entry = owner === undefined ? undefined : entries.get(owner);
    const at = entry && this.#finder.find(entry.addresses, socket);
    if (!entry || !at) return this.#retire(socket, open);
    const wanted = this.#wantedAddress(at);
    const isFree = !open?.standIn || !this.#isEndpoint(open.standIn, entry.plan.protocol);
    if (open && wanted === (open.standIn?.address ?? at.address) && isFree) {
      return this.#assign(open, { entry, at, operations });
    }
    this.#retire(socket, open);
    if (wanted !== undefined) this.#listen({ entry, at, wanted, operations });
    else this.#quarantineUnavailable(entry, at);
  }

  /** Closes the sockets that {@linkcode reconcile} found unwanted. */
  closeUnwanted(operations: SocketOperations): void {
    for (const open of this.#closing) {
      this.#close(open);
      operations.closedSockets++;
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

  /** Sockets that a frontend takes. */
  filesOf({ protocol }: { readonly protocol: Protocol }): number {
    return protocol === "TCP" ? this.#context.forwarders.threads : 1;
  }

  /** Quarantines what could not be opened after all; the threads that could close theirs. */
  fail(failures: readonly FailedSocket[]): void {
    const errors = new Map(failures.map(({ socket, error }) => [socket, error]));
    for (const [key, open] of this.#open) {
      const error = errors.get(open.socket);
      if (error === undefined) continue;
      const entry = this.#context.entries.get(open.owner);
      const at = entry && this.#finder.find(entry.addresses, key);
      this.#retire(key, open);
      if (!entry || !at) continue;
      const place = open.standIn ?? at;
      const isForeign = systemErrorOf(error) === "EADDRINUSE";
      if (isForeign) this.#setForeign(place, { protocol: open.protocol, isForeign });
      const { address, port } = place;
      this.#quarantine(entry, at, listenProblem(error, { address, port }));
    }
  }

  #close(open: OpenSocket): void {
    open.socket.close();
    this.#context.forwarding.openFiles.giveListener(open.service, this.filesOf(open));
  }

  #retire(socket: SocketKey, open: OpenSocket | undefined): void {
    if (!open) return;
    this.#open.delete(socket);
    this.#closing.add(open);
    const { standIn, protocol } = open;
    if (standIn) this.#standIns.delete(socketKey(standIn.address, standIn.port, protocol));
  }

  #setForeign(
    { address: hostname, port }: StandInPlace,
    who: { readonly protocol: Protocol; readonly isForeign: boolean },
  ): void {
    this.#context.forwarding.endpointLoops.setForeign({ hostname, port }, who);
  }

  #isEndpoint({ address: hostname, port }: StandInPlace, protocol: Protocol): boolean {
    return this.#context.forwarding.endpointLoops.isEndpoint({ hostname, port }, protocol);
  }

  #wantedAddress({ role, address }: ServiceAddress): IpAddress | undefined {
    if (role === "NodePort") return address;
    const place = this.#context.addresses.placeOf(address);
    if (place?.kind === "standIn") return place.address;
    return place?.kind === "local" ? address : undefined;
  }

  #assign(open: OpenSocket, { entry, at, operations }: Wanted): void {
    if (open.owner !== entry.plan.key) operations.handedOverSockets++;
    open.owner = entry.plan.key;
    const service = serviceKey(entry.plan.name);
    if (open.service !== service) {
      const { openFiles } = this.#context.forwarding;
      openFiles.moveListener(open.service, service, this.filesOf(open));
      open.service = service;
    }
    const { forwarder } = entry;
    if (forwarder) this.#context.forwarders.assign(open.socket, { at, forwarder });
  }

  #listen({ entry, at, wanted, operations }: Wanted & { readonly wanted: IpAddress }): void {
    const isStandIn = wanted !== at.address;
    const service = serviceKey(entry.plan.name);
    const { forwarders, forwarding: { openFiles } } = this.#context;
    const { forwarder, plan: { protocol } } = entry;
    if (!forwarder) return;
    const files = this.filesOf(entry.plan);
    const refusal = openFiles.takeListener(service, files);
    if (refusal !== undefined) return this.#quarantineRefused(entry, refusal);
    let failure: unknown;
    for (const port of isStandIn ? standInPorts(service, { ...at, protocol }) : [at.port]) {
      const place = { address: wanted, port };
      if (isStandIn && this.#isEndpoint(place, protocol)) continue;
      try {
        const socket = forwarders.open(place, { at, forwarder });
        this.#opened(at, { entry, standIn: isStandIn ? place : undefined, socket });
        this.#setForeign(place, { protocol, isForeign: false });
        operations.openedSockets++;
        return;
      } catch (error) {
        failure ??= error;
        const isForeign = systemErrorOf(error) === "EADDRINUSE";
        if (isForeign) this.#setForeign(place, { protocol, isForeign });
        if (!isPortRefused(error)) break;
      }
    }
    openFiles.giveListener(service, files);
    const problem = listenProblem(failure ?? STAND_IN_PROBLEM, { address: wanted, port: at.port });
    this.#quarantine(entry, at, problem);
  }

  #quarantine({ plan: { key } }: ServiceEntry, { socket }: ServiceAddress, problem: string): void {
    const reason = `Cannot listen on ${socket}: ${problem}`;
    this.#context.quarantine.add({ key, address: socket, reason });
  }

  /** One item, not one for each address: a small Service may have 100,000 of them. */
  #quarantineRefused({ plan: { key } }: ServiceEntry, refusal: string): void {
    const { quarantine } = this.#context;
    if (quarantine.has(key, MORE_ADDRESSES)) return;
    const reason = `Cannot listen on all addresses: ${refusal}`;
    quarantine.add({ key, address: MORE_ADDRESSES, reason });
  }

  #opened(
    at: ServiceAddress,
    { entry: { plan: { key: owner, name, protocol } }, standIn, socket }: Pick<Wanted, "entry"> & {
      readonly standIn: StandInPlace | undefined;
      readonly socket: ServiceSocket;
    },
  ): void {
    const service = serviceKey(name);
    this.#open.set(at.socket, { owner, service, standIn, protocol, socket });
    if (!standIn) return;
    this.#standIns.set(socketKey(standIn.address, standIn.port, protocol), at.socket);
  }

  #quarantineUnavailable(entry: ServiceEntry, at: ServiceAddress): void {
    const place = this.#context.addresses.placeOf(at.address);
    const reason = place?.kind === "unavailable" ? place.reason : "it was not asked for";
    this.#context.quarantine.add({
      key: entry.plan.key,
      address: at.socket,
      reason: `Cannot make ${at.address} local: ${reason}`,
    });
  }
}

interface Wanted {
  readonly entry: ServiceEntry;
  readonly at: ServiceAddress;
  readonly operations: SocketOperations;
}
