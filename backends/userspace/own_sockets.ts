/**
 * The sockets of this process towards endpoints, by which it recognizes itself as a client.
 * Planning excludes endpoints that are frontends; connections led back by a rule or another
 * machine are detected here.
 *
 * @module
 */
import { formatHostPort } from "../../lib/net/port.ts";
import type { SocketAddress } from "../../lib/os/network.ts";

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
  close(): void;
}

/** Both ends of a connection that was taken, or is made to an endpoint. */
export interface ConnectionEnds {
  readonly localAddr: SocketAddress;
  readonly remoteAddr: SocketAddress;
}

interface KnownConnection {
  readonly counter: HopCounter;
  /** The end that is not the key. */
  readonly farEnd: string;
}

/** Sockets of one IP family. */
export class OwnSockets {
  /** Connections to endpoints by their own end, and connections taken by the client's end. */
  readonly #dialled = new Map<string, KnownConnection>();
  readonly #taken = new Map<string, KnownConnection>();
  /** Ports of UDP flows: their sockets are bound to all addresses. */
  readonly #flowPorts = new Set<number>();

  /** Notes a connection that was taken. Returns whether this process has made it. */
  take(counter: HopCounter, { localAddr, remoteAddr }: ConnectionEnds): boolean {
    const key = keyOf(remoteAddr);
    const taken = { counter, farEnd: keyOf(localAddr) };
    this.#taken.set(key, taken);
    return countHops(this.#dialled.get(key), taken);
  }

  /** A connection that was taken is closed. */
  untake(counter: HopCounter, { remoteAddr }: Pick<ConnectionEnds, "remoteAddr">): void {
    forget(this.#taken, keyOf(remoteAddr), counter);
  }

  /**
   * Records a connection to an endpoint. Returns whether this process accepted it, in which case it
   * is closed. Either end may be known first.
   */
  dial(counter: HopCounter, { localAddr, remoteAddr }: ConnectionEnds): boolean {
    const key = keyOf(localAddr);
    const dialled = { counter, farEnd: keyOf(remoteAddr) };
    this.#dialled.set(key, dialled);
    const taken = this.#taken.get(key);
    if (taken === undefined || !countHops(dialled, taken)) return false;
    taken.counter.close();
    return true;
  }

  /** A connection to an endpoint is closed. */
  hangUp(counter: HopCounter, { localAddr }: Pick<ConnectionEnds, "localAddr">): void {
    forget(this.#dialled, keyOf(localAddr), counter);
  }

  openFlow(port: number): void {
    this.#flowPorts.add(port);
  }

  closeFlow(port: number): void {
    this.#flowPorts.delete(port);
  }

  /** Whether a flow uses the port, on any address of this machine. */
  hasFlow(port: number): boolean {
    return this.#flowPorts.has(port);
  }
}

/**
 * Whether both are certainly one connection. If both ends are equal, nothing has rewritten them.
 */
function countHops(dialled: KnownConnection | undefined, taken: KnownConnection): boolean {
  if (dialled === undefined) return false;
  if (dialled.farEnd === taken.farEnd) return true;
  taken.counter.hops = dialled.counter.hops + 1;
  return taken.counter.hops > MOST_HOPS;
}

/** The port may belong to another connection by now. */
function forget(known: Map<string, KnownConnection>, key: string, counter: HopCounter): void {
  if (known.get(key)?.counter === counter) known.delete(key);
}

function keyOf({ hostname, port }: SocketAddress): string {
  return formatHostPort(hostname, port);
}
