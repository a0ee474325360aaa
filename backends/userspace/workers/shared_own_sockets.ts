/**
 * The sockets towards endpoints that the threads of this process have, in memory that they share.
 * Sockets are found by their port. Two sockets of one port, of which one is forgotten, are rare, and
 * a loop of connections makes more of them.
 *
 * @module
 */

import { hashText, mixHash } from "../../../lib/net/text_hash.ts";
import type { SocketAddress } from "../../../lib/os/network.ts";

/** Ports of one address. */
const PORTS = 65_536;
/** Rows of the table: hashes of both ends of dialled and taken connections, and the hops. */
const ROWS = { dialled: 0, dialledTo: 1, hops: 2, taken: 3, takenAt: 4, flow: 5 } as const;
const ROW_COUNT = 6;

/** Certainly one connection: both ends are equal. */
const CERTAIN = Infinity;

/** Bytes of the memory for one IP family. Pages without a socket take no memory. */
export function createSharedSockets(): SharedArrayBuffer {
  return new SharedArrayBuffer(ROW_COUNT * PORTS * Int32Array.BYTES_PER_ELEMENT);
}

/** Forgets the sockets of a thread that has ended. */
export function forgetSocketsOf(memory: SharedArrayBuffer, index: number): void {
  const cells = new Int32Array(memory);
  for (let port = 0; port < PORTS; port++) {
    if (ownerOf(cells[cellOf("hops", port)]!) === index) cells[cellOf("dialled", port)] = 0;
    if (cells[cellOf("flow", port)] === index + 1) cells[cellOf("flow", port)] = 0;
  }
}

/** The table as one thread uses it. */
export class SharedOwnSockets {
  readonly #cells: Int32Array;
  readonly #index: number;

  constructor(memory: SharedArrayBuffer, index: number) {
    this.#cells = new Int32Array(memory);
    this.#index = index;
  }

  dial(
    own: SocketAddress,
    { farEnd, hops }: { readonly farEnd: SocketAddress; readonly hops: number },
  ): void {
    this.#set("hops", own.port, (hops << 8) | (this.#index + 1));
    this.#set("dialledTo", own.port, hashOf(farEnd));
    this.#set("dialled", own.port, hashOf(own));
  }

  hangUp(own: SocketAddress): void {
    this.#clear("dialled", own);
  }

  take(client: SocketAddress, farEnd: SocketAddress): void {
    this.#set("takenAt", client.port, hashOf(farEnd));
    this.#set("taken", client.port, hashOf(client));
  }

  untake(client: SocketAddress): void {
    this.#clear("taken", client);
  }

  /** Whether a thread has taken the connection with both of these ends. */
  isTaken(client: SocketAddress, farEnd: SocketAddress): boolean {
    return this.#get("taken", client.port) === hashOf(client) &&
      this.#get("takenAt", client.port) === hashOf(farEnd);
  }

  /**
   * The hops of a connection that a thread has dialled from this address, infinitely many if its far
   * end is equal as well; `undefined` = no thread has.
   */
  hopsOf(own: SocketAddress, farEnd: SocketAddress): number | undefined {
    if (this.#get("dialled", own.port) !== hashOf(own)) return undefined;
    if (this.#get("dialledTo", own.port) === hashOf(farEnd)) return CERTAIN;
    return this.#get("hops", own.port) >> 8;
  }

  openFlow(port: number): void {
    this.#set("flow", port, this.#index + 1);
  }

  closeFlow(port: number): void {
    if (this.#get("flow", port) === this.#index + 1) this.#set("flow", port, 0);
  }

  hasFlow(port: number): boolean {
    return this.#get("flow", port) !== 0;
  }

  #get(row: keyof typeof ROWS, port: number): number {
    return Atomics.load(this.#cells, cellOf(row, port));
  }

  #set(row: keyof typeof ROWS, port: number, value: number): void {
    Atomics.store(this.#cells, cellOf(row, port), value);
  }

  /** The port may belong to another socket by now. */
  #clear(row: keyof typeof ROWS, address: SocketAddress): void {
    Atomics.compareExchange(this.#cells, cellOf(row, address.port), hashOf(address), 0);
  }
}

function cellOf(row: keyof typeof ROWS, port: number): number {
  return ROWS[row] * PORTS + port;
}

function ownerOf(hops: number): number {
  return (hops & 255) - 1;
}

/** Never 0, which stands for no socket. */
function hashOf({ hostname, port }: SocketAddress): number {
  return mixHash(hashText(hostname) ^ port) | 1;
}
