import type { TcpConnection } from "../../../lib/os/network.ts";
import type { ServiceTraffic } from "../../../lib/proxy/service_traffic.ts";
import type { BufferPool } from "./buffer_pool.ts";
import type { ConnectionEnds, HopCounter } from "../own_sockets.ts";
import type { RecencyItem } from "../expiry_queue.ts";
import type { Relayed } from "../forwarder.ts";

/** Whom a session belongs to. */
export interface TcpSessionOwner {
  readonly smallBuffers: BufferPool;
  readonly largeBuffers: BufferPool;
  /** Counters of the Service, where they are wanted. */
  readonly traffic: ServiceTraffic | undefined;
  /** Data came, from either side. */
  touch(session: TcpSession): void;
  /** Both connections are closed. Called once. */
  onClosed(session: TcpSession): void;
}

/** The header with which a connection has to begin. */
export interface AwaitedHeader extends RecencyItem<AwaitedHeader> {
  readonly session: TcpSession;
  /** Why the session was closed. */
  reason: string | undefined;
}

/** Consecutive reads that fit the small buffer before a direction returns to it. */
const SMALL_READS_BEFORE_SHRINKING = 16;

const NOTHING = new Uint8Array(0);
const CLIENT = 1;
const ENDPOINT = 2;

/**
 * Copies both ways until both sides have ended their stream, or either breaks.
 *
 * A loop of reads and writes of our own: `pipeTo` lost the half-close (with preventClose and
 * closeWrite as well) and took twice the CPU; node:net took 1.3 times.
 */
export class TcpSession implements Relayed<TcpSession>, HopCounter {
  older: TcpSession | undefined;
  newer: TcpSession | undefined;
  usedAt = 0;
  hops = 0;
  /** The client whose connections a limit counts; `undefined` = not counted. */
  counted: string | undefined;
  /** The endpoint no longer has it; `undefined` = nothing depends on its connections. */
  unload: (() => void) | undefined;
  lifetime: Relayed<TcpSession>["lifetime"];
  /** The PROXY protocol header that has not come; `undefined` = none is waited for. */
  header: AwaitedHeader | undefined;
  readonly #owner: TcpSessionOwner;
  readonly #client: TcpConnection;
  #endpoint: TcpConnection | undefined;
  #closed = false;
  #oneSideEnded = false;
  /** The sides that are read now, as bits. */
  #reading = 0;

  constructor(owner: TcpSessionOwner, client: TcpConnection) {
    this.#owner = owner;
    this.#client = client;
  }

  /** The client's connection. */
  get client(): ConnectionEnds {
    return this.#client;
  }

  get closed(): boolean {
    return this.#closed;
  }

  /**
   * Copies until the session is closed, after `first` was sent to the endpoint. Does not reject;
   * `endpoint` is closed with the session.
   */
  async relay(endpoint: TcpConnection, first?: Uint8Array): Promise<void> {
    const client = this.#client;
    // The session may have been closed while the endpoint was dialled.
    if (this.#closed) return endpoint.close();
    this.#endpoint = endpoint;
    try {
      for (const connection of [client, endpoint]) {
        connection.setNoDelay();
        connection.setKeepAlive();
      }
    } catch {
      // The peer has reset the connection already: the kernel refuses options then.
      return this.close();
    }
    if (first && !await this.#sendFirst(endpoint, first)) return this.close();
    const upward = this.#copy(client, endpoint);
    await this.#copy(endpoint, client);
    await upward;
  }

  /** Closes both connections. The kernel still sends data that it has accepted. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#client.close();
    this.#endpoint?.close();
    this.#owner.onClosed(this);
  }

  /**
   * Closes the session if one side is gone while only the other one is read: only a write notices
   * that, and none waits. While none is read, at least one write waits.
   */
  async closeIfGone(): Promise<void> {
    const isClientRead = this.#reading === CLIENT;
    if (!isClientRead && this.#reading !== ENDPOINT) return;
    try {
      await (isClientRead ? this.#endpoint : this.#client)?.write(NOTHING);
    } catch {
      this.close();
    }
  }

  async #sendFirst(endpoint: TcpConnection, first: Uint8Array): Promise<boolean> {
    try {
      for (let sent = 0; sent < first.length;) sent += await endpoint.write(first.subarray(sent));
      return true;
    } catch {
      return false;
    }
  }

  async #copy(from: TcpConnection, to: TcpConnection): Promise<void> {
    const { smallBuffers, largeBuffers, traffic } = this.#owner;
    const side = from === this.#client ? CLIENT : ENDPOINT;
    let pool = smallBuffers;
    let buffer = pool.take();
    let smallReads = 0;
    try {
      for (;;) {
        this.#reading |= side;
        const count = await from.read(buffer);
        this.#reading &= ~side;
        if (count === null) break;
        this.#owner.touch(this);
        let sent = await to.write(count === buffer.length ? buffer : buffer.subarray(0, count));
        while (sent < count) sent += await to.write(buffer.subarray(sent, count));
        if (traffic) {
          if (side === CLIENT) traffic.bytesFromClients += count;
          else traffic.bytesToClients += count;
        }
        smallReads = count < smallBuffers.size ? smallReads + 1 : 0;
        const wanted = smallReads === 0
          ? largeBuffers
          : smallReads < SMALL_READS_BEFORE_SHRINKING
          ? pool
          : smallBuffers;
        if (wanted === pool) continue;
        pool.give(buffer);
        pool = wanted;
        buffer = pool.take();
      }
      await this.#endOfStream(from, to);
    } catch {
      // Reset by a peer, or closed by us: the other direction has no one to talk to any more.
      this.close();
    } finally {
      pool.give(buffer);
    }
  }

  /** Passes on the end of one direction; the other one may continue. */
  async #endOfStream(from: TcpConnection, to: TcpConnection): Promise<void> {
    if (this.#oneSideEnded) return this.close();
    this.#oneSideEnded = true;
    await to.closeWrite();
    // Deno reports a reset as the end of the stream. On a connection that was reset nothing can be
    // written, not even nothing (EPIPE): then there is no one left to wait for the other side.
    await from.write(NOTHING);
  }
}
