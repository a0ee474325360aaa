/**
 * The sockets of this process towards endpoints, by which it recognizes itself as a client.
 * Planning excludes endpoints that are frontends; connections led back by a rule or another
 * machine are detected here.
 *
 * They are in memory that all threads share, and are found by their port. Of two sockets of one port
 * one is forgotten: that is rare, and a loop of connections makes more of them.
 *
 * @module
 */
import { hashText, mixHash } from "../../lib/net/text_hash.ts";
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
  readonly client: ConnectionEnds;
  close(): void;
}

/** Both ends of a connection that was taken, or is made to an endpoint. */
export interface ConnectionEnds {
  readonly localAddr: SocketAddress;
  readonly remoteAddr: SocketAddress;
}

/** Ports of one address. */
const PORTS = 65_536;
/** Rows of the table: hashes of both ends of dialled and taken connections, the hops, and threads. */
const ROWS = {
  dialled: 0,
  dialledTo: 1,
  hops: 2,
  taken: 3,
  takenAt: 4,
  takenBy: 5,
  flow: 6,
} as const;
const ROW_COUNT = 7;

/** Bytes of memory for one IP family. Pages without a socket take none. */
export const SHARED_SOCKETS_BYTES: number = ROW_COUNT * PORTS * Int32Array.BYTES_PER_ELEMENT;

/** Sockets of one IP family, as one thread uses them. */
export class OwnSockets {
  readonly #cells: Int32Array;
  readonly #thread: number;
  /** Connections that this thread has taken, by the client's port. */
  readonly #taken = new Map<number, HopCounter>();

  constructor(memory: ArrayBufferLike = new ArrayBuffer(SHARED_SOCKETS_BYTES), thread = 0) {
    this.#cells = new Int32Array(memory);
    this.#thread = thread;
  }

  /** Notes a connection that was taken. Returns whether this process has made it. */
  take(counter: HopCounter, { localAddr, remoteAddr }: ConnectionEnds): boolean {
    this.#taken.set(remoteAddr.port, counter);
    this.#set("takenAt", remoteAddr.port, hashOf(localAddr));
    this.#set("takenBy", remoteAddr.port, this.#thread + 1);
    this.#set("taken", remoteAddr.port, hashOf(remoteAddr));
    return this.#countHops(counter, { localAddr, remoteAddr });
  }

  /** A connection that was taken is closed. */
  untake(counter: HopCounter): void {
    const { remoteAddr } = counter.client;
    if (this.#taken.get(remoteAddr.port) === counter) this.#taken.delete(remoteAddr.port);
    this.#clear("taken", remoteAddr);
  }

  /**
   * Records a connection to an endpoint. Returns whether this process accepted it. Either end may be
   * known first. The thread that dialled the client's connection may have noted it only after it was
   * taken, so its hops are counted again.
   */
  dial(counter: HopCounter, { localAddr: own, remoteAddr: farEnd }: ConnectionEnds): boolean {
    const isOwn = this.#countHops(counter, counter.client);
    this.#set("hops", own.port, (counter.hops << 8) | (this.#thread + 1));
    this.#set("dialledTo", own.port, hashOf(farEnd));
    this.#set("dialled", own.port, hashOf(own));
    const isTaken = this.#get("taken", own.port) === hashOf(own) &&
      this.#get("takenAt", own.port) === hashOf(farEnd);
    // Otherwise it would go on to its endpoint, and so on.
    const taken = isTaken ? this.#taken.get(own.port) : undefined;
    if (taken?.client.remoteAddr.hostname === own.hostname) taken.close();
    return isOwn || isTaken;
  }

  /** A connection to an endpoint is closed. */
  hangUp({ localAddr }: Pick<ConnectionEnds, "localAddr">): void {
    this.#clear("dialled", localAddr);
  }

  openFlow(port: number): void {
    this.#set("flow", port, this.#thread + 1);
  }

  closeFlow(port: number): void {
    if (this.#get("flow", port) === this.#thread + 1) this.#set("flow", port, 0);
  }

  /** Whether a flow uses the port, on any address of this machine. */
  hasFlow(port: number): boolean {
    return this.#get("flow", port) !== 0;
  }

  /** Forgets the sockets of this thread: it has ended. */
  forgetOwn(): void {
    for (let port = 0; port < PORTS; port++) {
      const owner = this.#cells[ROWS.hops * PORTS + port]! & 255;
      if (owner === this.#thread + 1) this.#set("dialled", port, 0);
      if (this.#cells[ROWS.takenBy * PORTS + port] === this.#thread + 1) {
        this.#set("taken", port, 0);
      }
      if (this.#cells[ROWS.flow * PORTS + port] !== 0) this.closeFlow(port);
    }
  }

  /** Counts the hops of a taken connection, if this process has made it; returns whether that is certain. */
  #countHops(counter: HopCounter, { localAddr, remoteAddr: { port }, remoteAddr }: ConnectionEnds) {
    if (this.#get("dialled", port) !== hashOf(remoteAddr)) return false;
    // If both ends are equal, nothing has rewritten them; what follows is recognized by its ends, too.
    if (this.#get("dialledTo", port) === hashOf(localAddr)) return true;
    counter.hops = Math.min(this.#get("hops", port) >> 8, MOST_HOPS) + 1;
    return counter.hops > MOST_HOPS;
  }

  #get(row: keyof typeof ROWS, port: number): number {
    return Atomics.load(this.#cells, ROWS[row] * PORTS + port);
  }

  #set(row: keyof typeof ROWS, port: number, value: number): void {
    Atomics.store(this.#cells, ROWS[row] * PORTS + port, value);
  }

  /** The port may belong to another socket by now. */
  #clear(row: keyof typeof ROWS, address: SocketAddress): void {
    Atomics.compareExchange(this.#cells, ROWS[row] * PORTS + address.port, hashOf(address), 0);
  }
}

/** Never 0, which stands for no socket. */
function hashOf({ hostname, port }: SocketAddress): number {
  return mixHash(hashText(hostname) ^ port) | 1;
}
