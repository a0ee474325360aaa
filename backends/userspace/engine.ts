/**
 * What the logic of connections and flows needs of a machine: sockets, and copying between them. All
 * of `tcp/` and `udp/` is written once on {@linkcode Engine}; {@linkcode DenoEngine} is the one of
 * this process.
 *
 * @module
 */
import { type Backoff, socketBackoff } from "../../lib/os/backoff.ts";
import type { Clock } from "../../lib/os/clock.ts";
import {
  connectUnixWithin,
  type Network,
  type SocketAddress,
  type TcpConnection,
  type TcpListener,
  type UdpSocket,
} from "../../lib/os/network.ts";
import { isClientGone } from "../../lib/os/socket_errors.ts";
import { TurnShare } from "../../lib/os/turn_share.ts";

/** Sockets and timers. Errors are those of the system, which `socket_errors.ts` reads. */
export interface Engine {
  readonly clock: Clock;
  /** `isShared`: sockets of this user that are also shared may have the same address. */
  listenTcp(at: SocketAddress, isShared?: boolean): ConnectionSource;
  /**
   * Connects to an endpoint, or to the Unix socket in its place, and calls the attempt: perhaps at once,
   * and perhaps although it was abandoned.
   */
  connect(
    endpoint: SocketAddress,
    attempt: ConnectAttempt,
    unixSocket: string | undefined,
  ): void;
  /**
   * Copies both ways until both sides have ended their stream, or either breaks; then it closes its
   * user, perhaps at once. `first` goes to the endpoint before everything else.
   */
  relay(
    client: EngineConnection,
    endpoint: EngineConnection,
    user: RelayUser,
    first?: Uint8Array,
  ): Relay;
  listenUdp(at: SocketAddress): DatagramSocket;
  /** Opens a socket towards an endpoint, with a port of its own. */
  openFlow(endpoint: SocketAddress): FlowSocket;
}

/** A connection of an engine, which relays it to others of its own only. */
export type EngineConnection = Pick<
  TcpConnection,
  "localAddr" | "remoteAddr" | "read" | "write" | "close"
>;

/**
 * An attempt to connect, which an engine calls, and which may be abandoned. Promises, and an AbortSignal with
 * a listener, take as much CPU as the rest of an attempt.
 */
export abstract class ConnectAttempt {
  isAbandoned = false;
  onAbandoned: (() => void) | undefined;

  abandon(): void {
    this.isAbandoned = true;
    this.onAbandoned?.();
  }

  abstract onConnected(connection: EngineConnection): void;

  /** Called with {@linkcode Abandoned} if it was abandoned in time. */
  abstract onFailed(error: unknown): void;
}

/** The reason of an attempt that was abandoned. */
export class Abandoned extends Error {
  constructor() {
    super("the attempt to connect took too long");
  }
}

/** A TCP socket that accepts connections. */
export interface ConnectionSource {
  readonly addr: SocketAddress;
  /** Accepts until the socket is closed, a bounded number at a time. Never rejects. */
  serve(taker: ConnectionTaker): Promise<void>;
  /** Connections that were taken stay. */
  close(): void;
}

/** Takes connections one by one. */
export interface ConnectionTaker {
  take(connection: EngineConnection): void;
  /** None could be accepted; the next attempt follows after a pause. */
  onError(error: unknown): void;
}

/** Whom two relayed connections belong to. */
export interface RelayUser {
  /** Data came. */
  onData(isFromClient: boolean, bytes: number): void;
  /** Closes both connections. May be called again. */
  close(): void;
  /** Nothing is copied any more: the last call. */
  onEnded(): void;
}

/** Two connections between which data is copied. */
export interface Relay {
  /**
   * Closes the user if one side is gone while only the other one is read: only a write notices that, and
   * none waits. While none is read, at least one write waits.
   */
  closeIfGone(): Promise<void>;
}

/** Who has sent a datagram. */
export interface DatagramSender extends SocketAddress {
  /** A name for it that its receiver has made, and finds again where an engine keeps the object. */
  key?: string;
}

/** A UDP socket, which is not connected. */
export interface DatagramSocket {
  readonly addr: SocketAddress;
  /** Receives until the socket is closed. Never rejects. */
  serve(receiver: DatagramReceiver): Promise<void>;
  send(data: Uint8Array, to: SocketAddress): Promise<unknown> | void;
  close(): void;
}

/** A UDP socket that receives from one endpoint only. */
export interface FlowSocket {
  /** The port that the kernel gave it. */
  readonly port: number;
  /** Receives until the socket is closed. Never rejects. */
  serve(receiver: FlowReceiver): Promise<void>;
  send(data: Uint8Array): Promise<unknown> | void;
  /** Changes the endpoint: later datagrams of the former one are dropped. */
  move(endpoint: SocketAddress): void;
  close(): void;
}

/** Takes datagrams one by one. */
export interface DatagramReceiver {
  /**
   * The bytes are others afterwards. An engine may wait for the result before the next datagram. `sender` is
   * the same object or another one for datagrams of one sender.
   */
  take(datagram: Uint8Array, sender: DatagramSender): Promise<unknown> | void;
  /** A datagram was not passed on: {@linkcode take} has failed. */
  onLost?(): void;
  /** None could be received; the next attempt follows after a pause. */
  onError?(error: unknown): void;
}

/** Takes the datagrams of an endpoint one by one. */
export interface FlowReceiver {
  /** As {@linkcode DatagramReceiver.take}. */
  take(datagram: Uint8Array): Promise<unknown> | void;
  /** A datagram of another sender was dropped; the kernel may do that and not report it. */
  onForeign(): void;
  /** A datagram could not be sent, which an engine may find out after {@linkcode FlowSocket.send}. */
  onLost(): void;
}

/** Bytes of the buffer with which each direction of a TCP connection begins. */
const SMALL_BYTES = 4096;
/** Bytes of the buffer of a direction that fills the small one. */
const LARGE_BYTES = 65_536;
/** No datagram is longer than 65,527 bytes. */
const DATAGRAM_BYTES = 65_536;
/** A block for datagrams. Below 32 MiB it is not sure to be mapped afresh (glibc's largest threshold). */
const DATAGRAM_BLOCK_BYTES = 1024 * DATAGRAM_BYTES;
/** Consecutive reads that fit the small buffer before a direction returns to it. */
const SMALL_READS_BEFORE_SHRINKING = 16;

/**
 * Connections that are accepted in one turn of the event loop, each about 0.2 ms of work. Deno takes
 * 128 at once from a full queue, and hardly reports anything else until the queue is empty: a burst of
 * some thousands held up all other connections, attempts to connect and health checks for seconds.
 */
const ACCEPTS_PER_TURN = 16;

const NOTHING = new Uint8Array(0);
const CLIENT = 1;
const ENDPOINT = 2;

/** Sockets of Deno. */
export class DenoEngine implements Engine {
  readonly clock: Clock;
  readonly small = new BufferPool(SMALL_BYTES, 4096);
  readonly large = new BufferPool(LARGE_BYTES, 64);
  readonly #network: Network;
  readonly #unixSocketFolders: readonly string[];
  readonly #datagrams: BufferPool;
  /** The sockets take turns. */
  readonly #accepts: TurnShare;

  constructor(network: Network, clock: Clock, unixSocketFolders: readonly string[] = []) {
    this.clock = clock;
    this.#accepts = new TurnShare({ clock }, ACCEPTS_PER_TURN);
    this.#network = network;
    this.#unixSocketFolders = unixSocketFolders;
    // Each UDP socket needs a buffer of its own in the pending receive, and a datagram that is longer than
    // the buffer is cut without notice, so all have the full length. Taken one by one, 2,000 of them made
    // 128 MB resident (V8's allocator clears them); pages of a large block come cleared from the kernel and
    // cost nothing until a datagram touches them: 4 KB for a usual one.
    let block: ArrayBuffer | undefined;
    let used = DATAGRAM_BLOCK_BYTES;
    this.#datagrams = new BufferPool(DATAGRAM_BYTES, Infinity, () => {
      if (used === DATAGRAM_BLOCK_BYTES) {
        block = new ArrayBuffer(DATAGRAM_BLOCK_BYTES);
        used = 0;
      }
      used += DATAGRAM_BYTES;
      return new Uint8Array(block!, used - DATAGRAM_BYTES, DATAGRAM_BYTES);
    });
  }

  listenTcp({ hostname, port }: SocketAddress, isShared = false): ConnectionSource {
    const listener = this.#network.listenTcp({ hostname, port, isShared });
    return new DenoConnections(listener, this.#accepts, this.clock);
  }

  connect(
    endpoint: SocketAddress,
    attempt: ConnectAttempt,
    path: string | undefined,
  ): void {
    void this.#connect(endpoint, attempt, path).then(
      (connection) => attempt.onConnected(connection),
      (error) => attempt.onFailed(error),
    );
  }

  #connect(
    endpoint: SocketAddress,
    attempt: ConnectAttempt,
    path: string | undefined,
  ): Promise<TcpConnection> {
    if (path !== undefined) {
      return connectUnixWithin(this.#unixSocketFolders, { path, remoteAddr: endpoint });
    }
    const abort = new AbortController();
    attempt.onAbandoned = () => abort.abort(new Abandoned());
    if (attempt.isAbandoned) attempt.onAbandoned();
    return this.#network.connectTcp(endpoint, abort.signal);
  }

  relay(
    client: TcpConnection,
    endpoint: TcpConnection,
    user: RelayUser,
    first?: Uint8Array,
  ): Relay {
    return new DenoRelay(this, client, endpoint, user, first);
  }

  listenUdp(at: SocketAddress): DatagramSocket {
    return new DenoDatagrams(this.#network.listenUdp(at), this.#datagrams, this.clock);
  }

  openFlow(endpoint: SocketAddress): FlowSocket {
    // On every address, so that the kernel takes the one that leads to the endpoint as the source.
    const hostname = endpoint.hostname.includes(":") ? "::" : "0.0.0.0";
    return new DenoFlow(this.listenUdp({ hostname, port: 0 }), endpoint);
  }
}

/** A loop with one accept at a time. */
class DenoConnections implements ConnectionSource {
  readonly #listener: TcpListener;
  readonly #accepts: TurnShare;
  readonly #clock: Clock;
  // Made when it is needed: most of 10,000 sockets never fail.
  #backOff: Backoff | undefined;
  #closed = false;

  constructor(listener: TcpListener, accepts: TurnShare, clock: Clock) {
    this.#listener = listener;
    this.#accepts = accepts;
    this.#clock = clock;
  }

  get addr(): SocketAddress {
    return this.#listener.addr;
  }

  async serve(taker: ConnectionTaker): Promise<void> {
    while (!this.#closed) {
      let connection: TcpConnection;
      try {
        connection = await this.#listener.accept();
      } catch (error) {
        if (this.#closed) break;
        if (isClientGone(error)) continue;
        // The connection stays in the kernel's queue: asking again at once would be a busy loop.
        taker.onError(error);
        await (this.#backOff ??= socketBackoff()).pause(this.#clock);
        continue;
      }
      this.#backOff = undefined;
      // Of a burst, the rest stays in the kernel's queue meanwhile.
      await this.#accepts.take();
      // Its Service may be deleted: nothing would end the connection.
      if (this.#closed) {
        connection.close();
        break;
      }
      taker.take(connection);
    }
    await this.#accepts.ended();
  }

  close(): void {
    this.#closed = true;
    this.#listener.close();
    this.#backOff?.cancel();
  }
}

/**
 * A loop of reads and writes of our own: `pipeTo` lost the half-close (with preventClose and closeWrite
 * as well) and took twice the CPU; node:net took 1.3 times.
 */
class DenoRelay implements Relay {
  readonly #engine: DenoEngine;
  readonly #client: TcpConnection;
  readonly #endpoint: TcpConnection;
  readonly #user: RelayUser;
  #oneSideEnded = false;
  /** The sides that are read now, as bits. */
  #reading = 0;

  constructor(
    engine: DenoEngine,
    client: TcpConnection,
    endpoint: TcpConnection,
    user: RelayUser,
    first: Uint8Array | undefined,
  ) {
    this.#engine = engine;
    this.#client = client;
    this.#endpoint = endpoint;
    this.#user = user;
    void this.#run(first).then(() => user.onEnded());
  }

  async closeIfGone(): Promise<void> {
    const isClientRead = this.#reading === CLIENT;
    if (!isClientRead && this.#reading !== ENDPOINT) return;
    try {
      await (isClientRead ? this.#endpoint : this.#client).write(NOTHING);
    } catch {
      this.#user.close();
    }
  }

  async #run(first: Uint8Array | undefined): Promise<void> {
    const [client, endpoint] = [this.#client, this.#endpoint];
    try {
      for (const connection of [client, endpoint]) {
        connection.setNoDelay();
        connection.setKeepAlive();
      }
      if (first) {
        for (let sent = 0; sent < first.length;) sent += await endpoint.write(first.subarray(sent));
      }
    } catch {
      // A peer has reset the connection already: the kernel refuses options then.
      return this.#user.close();
    }
    const upward = this.#copy(client, endpoint);
    await this.#copy(endpoint, client);
    await upward;
  }

  async #copy(from: TcpConnection, to: TcpConnection): Promise<void> {
    const { small, large } = this.#engine;
    const isFromClient = from === this.#client;
    const side = isFromClient ? CLIENT : ENDPOINT;
    let pool = small;
    let buffer = pool.take();
    let smallReads = 0;
    try {
      for (;;) {
        this.#reading |= side;
        const count = await from.read(buffer);
        this.#reading &= ~side;
        if (count === null) break;
        this.#user.onData(isFromClient, count);
        let sent = await to.write(count === buffer.length ? buffer : buffer.subarray(0, count));
        while (sent < count) sent += await to.write(buffer.subarray(sent, count));
        smallReads = count < small.size ? smallReads + 1 : 0;
        const wanted = smallReads === 0
          ? large
          : smallReads < SMALL_READS_BEFORE_SHRINKING
          ? pool
          : small;
        if (wanted === pool) continue;
        pool.give(buffer);
        pool = wanted;
        buffer = pool.take();
      }
      await this.#endOfStream(from, to);
    } catch {
      // Reset by a peer, or closed by us: the other direction has no one to talk to any more.
      this.#user.close();
    } finally {
      pool.give(buffer);
    }
  }

  /** Passes on the end of one direction; the other one may continue. */
  async #endOfStream(from: TcpConnection, to: TcpConnection): Promise<void> {
    if (this.#oneSideEnded) return this.#user.close();
    this.#oneSideEnded = true;
    await to.closeWrite();
    // Deno reports a reset as the end of the stream. On a connection that was reset nothing can be
    // written, not even nothing (EPIPE): then there is no one left to wait for the other side.
    await from.write(NOTHING);
  }
}

/**
 * A loop with one receive and one send at a time. docs/decisions/0029-one-socket-per-udp-flow.md has what
 * was tried instead, with the figures.
 */
class DenoDatagrams implements DatagramSocket {
  readonly #socket: UdpSocket;
  readonly #buffers: BufferPool;
  readonly #clock: Clock;
  #backOff: Backoff | undefined;
  #closed = false;

  constructor(socket: UdpSocket, buffers: BufferPool, clock: Clock) {
    this.#socket = socket;
    this.#buffers = buffers;
    this.#clock = clock;
  }

  get addr(): SocketAddress {
    return this.#socket.addr;
  }

  async serve(receiver: DatagramReceiver): Promise<void> {
    const buffer = this.#buffers.take();
    while (!this.#closed) {
      let received: [Uint8Array, SocketAddress];
      try {
        received = await this.#socket.receive(buffer);
      } catch (error) {
        if (this.#closed) break;
        receiver.onError?.(error);
        await (this.#backOff ??= socketBackoff()).pause(this.#clock);
        continue;
      }
      this.#backOff = undefined;
      try {
        // Done before the next receive, since that uses the buffer again.
        await receiver.take(received[0], received[1]);
      } catch {
        // Too long for the path, no route, or the socket has just been closed: a datagram may be lost.
        receiver.onLost?.();
      }
    }
    this.#buffers.give(buffer);
  }

  send(data: Uint8Array, to: SocketAddress): Promise<number> {
    return this.#socket.send(data, to);
  }

  close(): void {
    this.#closed = true;
    this.#socket.close();
    this.#backOff?.cancel();
  }
}

/** A socket that anyone may send to: only the endpoint is listened to. */
class DenoFlow implements FlowSocket {
  readonly #socket: DatagramSocket;
  // Kept, so that no object is made for each datagram.
  #endpoint: SocketAddress;

  constructor(socket: DatagramSocket, endpoint: SocketAddress) {
    this.#socket = socket;
    this.#endpoint = endpoint;
  }

  get port(): number {
    return this.#socket.addr.port;
  }

  serve(receiver: FlowReceiver): Promise<void> {
    return this.#socket.serve({
      take: (datagram, { hostname, port }) =>
        port === this.#endpoint.port && hostname === this.#endpoint.hostname
          ? receiver.take(datagram)
          : receiver.onForeign(),
    });
  }

  send(data: Uint8Array): Promise<unknown> | void {
    return this.#socket.send(data, this.#endpoint);
  }

  move(endpoint: SocketAddress): void {
    this.#endpoint = endpoint;
  }

  close(): void {
    this.#socket.close();
  }
}

/** Buffers of one size. The last given is the first taken, so that few pages are ever touched. */
class BufferPool {
  readonly size: number;
  readonly #keep: number;
  readonly #create: () => Uint8Array;
  readonly #free: Uint8Array[] = [];

  /** `keep`: unused buffers that are kept; more than that go to the garbage collector. */
  constructor(size: number, keep: number, create = (): Uint8Array => new Uint8Array(size)) {
    this.size = size;
    this.#keep = keep;
    this.#create = create;
  }

  take(): Uint8Array {
    return this.#free.pop() ?? this.#create();
  }

  /** Takes back a buffer that nothing reads or writes any more. */
  give(buffer: Uint8Array): void {
    if (this.#free.length < this.#keep) this.#free.push(buffer);
  }
}
