/**
 * The sockets of this process towards endpoints, by which it recognizes itself as a client.
 * Planning excludes endpoints that are frontends; connections led back by a rule or another
 * machine are detected here.
 *
 * @module
 */
import { type IpAddress, ipv4Number } from "../../lib/net/ip_address.ts";
import { formatHostPort } from "../../lib/net/port.ts";
import type { SocketAddress } from "../../lib/os/network.ts";
import type { SharedOwnSockets } from "./workers/shared_own_sockets.ts";

/** The cure for a connection or datagram that comes back to this process. */
export const CAME_BACK_CURE =
  "find the rule, or the machine, that leads an endpoint of the Service to an address of a Service";

/**
 * Connections of this process in a row, each of which seems to be made for the one before, after
 * which it is certain. A single one may be chance: the kernel gives one port of an address to several
 * programs that connect to different places.
 */
const MOST_HOPS = 32;

/** A connection of a client, and how many connections of this process it seems to have come by. */
export interface HopCounter {
  hops: number;
  readonly client: ConnectionEnds;
  close(): void;
}

/** Both ends of a connection that was taken, or is made to an endpoint. */
export interface ConnectionEnds {
  readonly localAddr: SocketAddress;
  readonly remoteAddr: SocketAddress;
}

type ConnectionKey = string | number;

/** Ports of one address. */
const PORTS = 65_536;

interface KnownConnection {
  readonly counter: HopCounter;
  /** The end that is not the key. */
  readonly farEnd: SocketAddress;
}

/** Sockets of one IP family. */
export class OwnSockets {
  /** Connections to endpoints by their own end, and connections taken by the client's end. */
  readonly #dialled = new Map<ConnectionKey, KnownConnection>();
  readonly #taken = new Map<ConnectionKey, KnownConnection>();
  /** Ports of UDP flows: their sockets are bound to all addresses. */
  readonly #flowPorts = new Set<number>();
  /** Those of other threads; `undefined` = there are none. */
  readonly #shared: SharedOwnSockets | undefined;

  constructor(shared?: SharedOwnSockets) {
    this.#shared = shared;
  }

  /** Notes a connection that was taken. Returns whether this process has made it. */
  take(counter: HopCounter, { localAddr, remoteAddr }: ConnectionEnds): boolean {
    const key = keyOf(remoteAddr);
    const taken = { counter, farEnd: localAddr };
    this.#taken.set(key, taken);
    const dialled = this.#dialled.get(key);
    if (dialled || !this.#shared) return countHops(dialled, taken);
    this.#shared.take(remoteAddr, localAddr);
    return this.#countSharedHops(taken, remoteAddr);
  }

  /** A connection that was taken is closed. */
  untake(counter: HopCounter, { remoteAddr }: Pick<ConnectionEnds, "remoteAddr">): void {
    forget(this.#taken, keyOf(remoteAddr), counter);
    this.#shared?.untake(remoteAddr);
  }

  /**
   * Records a connection to an endpoint. Returns whether this process accepted it, in which case it
   * is closed. Either end may be known first.
   */
  dial(counter: HopCounter, { localAddr, remoteAddr }: ConnectionEnds): boolean {
    const key = keyOf(localAddr);
    const dialled = { counter, farEnd: remoteAddr };
    this.#dialled.set(key, dialled);
    const isShared = this.#shared && this.#dialShared(dialled, localAddr);
    const taken = this.#taken.get(key);
    if (taken === undefined || !countHops(dialled, taken)) return isShared === true;
    // Otherwise it would go on to its endpoint, and so on.
    taken.counter.close();
    return true;
  }

  /** A connection to an endpoint is closed. */
  hangUp(counter: HopCounter, { localAddr }: Pick<ConnectionEnds, "localAddr">): void {
    forget(this.#dialled, keyOf(localAddr), counter);
    this.#shared?.hangUp(localAddr);
  }

  openFlow(port: number): void {
    this.#flowPorts.add(port);
    this.#shared?.openFlow(port);
  }

  closeFlow(port: number): void {
    this.#flowPorts.delete(port);
    this.#shared?.closeFlow(port);
  }

  /** Whether a flow uses the port, on any address of this machine. */
  hasFlow(port: number): boolean {
    return this.#flowPorts.has(port) || this.#shared?.hasFlow(port) === true;
  }

  /**
   * Publishes a connection for the other threads. The thread that dialled the client's connection
   * may have noted it only after it was taken, so its hops are counted again.
   */
  #dialShared({ counter, farEnd }: KnownConnection, own: SocketAddress): boolean {
    const { localAddr, remoteAddr } = counter.client;
    const taken = { counter, farEnd: localAddr };
    const isOwn = !this.#dialled.has(keyOf(remoteAddr)) &&
      this.#countSharedHops(taken, remoteAddr);
    this.#shared!.dial(own, { farEnd, hops: counter.hops });
    return isOwn || this.#shared!.isTaken(own, farEnd);
  }

  #countSharedHops({ counter, farEnd }: KnownConnection, client: SocketAddress): boolean {
    const hops = this.#shared!.hopsOf(client, farEnd);
    if (hops === undefined) return false;
    counter.hops = Math.min(hops + 1, MOST_HOPS + 1);
    return counter.hops > MOST_HOPS;
  }
}

/**
 * Whether both are certainly one connection. If both ends are equal, nothing has rewritten them.
 */
function countHops(dialled: KnownConnection | undefined, taken: KnownConnection): boolean {
  if (dialled === undefined) return false;
  if (isSame(dialled.farEnd, taken.farEnd)) return true;
  taken.counter.hops = dialled.counter.hops + 1;
  return taken.counter.hops > MOST_HOPS;
}

/** The port may belong to another connection by now. */
function forget(
  known: Map<ConnectionKey, KnownConnection>,
  key: ConnectionKey,
  counter: HopCounter,
): void {
  if (known.get(key)?.counter === counter) known.delete(key);
}

function isSame(left: SocketAddress, right: SocketAddress): boolean {
  return left.port === right.port && left.hostname === right.hostname;
}

/** The key of an address in a map; a number where it can be one, which costs less than a text. */
function keyOf({ hostname, port }: SocketAddress): ConnectionKey {
  if (hostname.includes(":")) return formatHostPort(hostname, port);
  return ipv4Number(hostname as IpAddress) * PORTS + port;
}
