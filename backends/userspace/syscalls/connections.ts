import type { SocketAddress } from "../../../lib/os/network.ts";
import type { ConnectAttempt, EngineConnection, Relay, RelayUser } from "../engine.ts";
import type { EventLoop, FdOwner } from "./event_loop.ts";
import { type Bytes, EPOLL, SystemError, WOULD_BLOCK } from "./libc.ts";
import { decodeAddress } from "./socket_address.ts";

/** Bytes of one read. A read of as many as {@linkcode BULK_BYTES} begins to move by pipes. */
const BUFFER_BYTES = 65_536;
const BULK_BYTES = 16_384;
/** Small moves in a row after which a direction returns to the buffer. */
const SMALL_MOVES = 16;
/** Bytes of a pipe, if the kernel allows them; and unused pipes that are kept. */
const PIPE_BYTES = 1 << 20;
const KEPT_PIPES = 64;
/** Moves of one direction in one turn, of which one by a pipe counts for several: others wait meanwhile. */
const MOVES_PER_TURN = 16;
const MOVES_PER_PIPE = 4;

interface Pipe {
  readonly from: number;
  readonly to: number;
}

const PIPE_OWNER: FdOwner = { onEvents() {} };

/** What all connections of a loop share. */
export class ConnectionSpace {
  readonly loop: EventLoop;
  /** Holds data during one call only. */
  readonly buffer: Bytes = new Uint8Array(BUFFER_BYTES);
  readonly #pipes: Pipe[] = [];

  constructor(loop: EventLoop) {
    this.loop = loop;
  }

  takePipe(): Pipe | undefined {
    const free = this.#pipes.pop();
    if (free) return free;
    const pipe = this.loop.libc.pipe(PIPE_BYTES);
    if (pipe === undefined) return undefined;
    this.loop.own(pipe.from, PIPE_OWNER, 0);
    this.loop.own(pipe.to, PIPE_OWNER, 0);
    return pipe;
  }

  /** Takes back a pipe, which is used again if it is empty. */
  givePipe(pipe: Pipe, isEmpty: boolean): void {
    if (isEmpty && this.#pipes.length < KEPT_PIPES) return void this.#pipes.push(pipe);
    this.loop.close(pipe.from, PIPE_OWNER);
    this.loop.close(pipe.to, PIPE_OWNER);
  }

  /** Closes the pipes that are kept. */
  close(): void {
    for (const pipe of this.#pipes.splice(0)) this.givePipe(pipe, false);
  }
}

interface Reader {
  readonly buffer: Bytes;
  readonly done: PromiseWithResolvers<number | null>;
}

const WATCHED = EPOLL.IN | EPOLL.OUT | EPOLL.RDHUP | EPOLL.EDGE;

/** One end of a relay: a TCP connection, or one by a Unix socket in its place. */
export class SocketConnection implements EngineConnection, FdOwner {
  readonly fd: number;
  readonly remoteAddr: SocketAddress;
  readonly #space: ConnectionSpace;
  #localAddr: SocketAddress | undefined;
  #isWatched = false;
  #isClosed = false;
  #attempt: ConnectAttempt | undefined;
  #reader: Reader | undefined;
  /** Set while it is relayed. */
  #relay: SocketRelay | undefined;
  #peer: SocketConnection | undefined;
  #isReadable = false;
  #isWritable = false;
  /** The kernel has reported the end, or a break: it need not report again what comes before. */
  #isEnding = false;
  #isBroken = false;
  /** All was read that came before the end. */
  #isDrained = false;
  #hasEnded = false;
  /** A turn of its own is due. */
  #isQueued = false;
  /** Data that was read and not written yet: in `#pending` from `#at`, or in the pipe. */
  #held = 0;
  #pending: Uint8Array | undefined;
  #pipe: Pipe | undefined;
  #isBulk = false;
  #smallMoves = 0;

  /** Takes over an open socket. `localAddr`: where it is known, the kernel need not be asked. */
  constructor(
    space: ConnectionSpace,
    fd: number,
    remoteAddr: SocketAddress,
    localAddr?: SocketAddress,
  ) {
    this.#space = space;
    this.fd = fd;
    this.remoteAddr = remoteAddr;
    this.#localAddr = localAddr;
    space.loop.own(fd, this, 0);
  }

  get localAddr(): SocketAddress {
    return this.#localAddr ??= decodeAddress(this.#space.loop.libc.ownAddress(this.fd));
  }

  /** Whether it broke while nothing reads it. */
  get isBroken(): boolean {
    return this.#isBroken;
  }

  /** Begins to connect. Throws a {@linkcode SystemError}; then it is closed. */
  connect(address: Bytes, attempt: ConnectAttempt): this {
    try {
      this.#space.loop.libc.connect(this.fd, address);
      this.#attempt = attempt;
      this.#watch();
      return this;
    } catch (error) {
      this.close();
      throw error;
    }
  }

  read(buffer: Uint8Array): Promise<number | null> {
    if (this.#isClosed) return Promise.reject(new Error("the connection was closed"));
    const done = Promise.withResolvers<number | null>();
    this.#reader = { buffer: buffer as Bytes, done };
    this.#watch();
    this.#read();
    return done.promise;
  }

  /** For what is short: it fails where it would wait. */
  write(data: Uint8Array): Promise<number> {
    if (this.#isClosed) return Promise.reject(new Error("the connection was closed"));
    const count = this.#space.loop.libc.send(this.fd, data, data.length);
    if (count < 0) return Promise.reject(new SystemError("send", -count));
    return Promise.resolve(count);
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#dropPipe();
    this.#pending = this.#attempt = undefined;
    this.#space.loop.close(this.fd, this);
    const [reader, relay] = [this.#reader, this.#relay];
    this.#reader = undefined;
    reader?.done.reject(new Error("the connection was closed"));
    relay?.onClosed();
  }

  /** Begins to copy what comes to the peer, after `first` was sent there. */
  copyTo(peer: SocketConnection, relay: SocketRelay, first: Uint8Array | undefined): void {
    this.#peer = peer;
    this.#relay = relay;
    if (first) {
      this.#pending = first;
      this.#held = first.length;
    }
    if (!this.#isClosed) this.#watch();
  }

  onEvents(mask: number): void {
    if (this.#attempt) return this.#finish(this.#attempt, mask);
    if (mask & (EPOLL.RDHUP | EPOLL.HUP | EPOLL.ERR)) this.#isEnding = true;
    if (mask & EPOLL.ERR) {
      this.#isBroken = true;
      if (this.#hasEnded) return this.#relay?.abort();
    }
    if (mask & EPOLL.OUT && !this.#isWritable) {
      this.#isWritable = true;
      this.#peer?.pump();
    }
    if (mask & ~EPOLL.OUT) {
      this.#isReadable = true;
      if (this.#reader) this.#read();
      else this.pump();
    }
  }

  #finish(attempt: ConnectAttempt, mask: number): void {
    const error = mask & (EPOLL.ERR | EPOLL.HUP)
      ? this.#space.loop.libc.socketError(this.fd)
      : undefined;
    if (error === undefined && (mask & EPOLL.OUT) === 0) return;
    this.#attempt = undefined;
    if (error) {
      this.close();
      return attempt.onFailed(error);
    }
    this.#isWritable = true;
    this.#isReadable = (mask & ~EPOLL.OUT) !== 0;
    attempt.onConnected(this);
  }

  /** Moves what has come to the peer, until one of them waits or the turn is used up. */
  pump(): void {
    const [peer, relay] = [this.#peer, this.#relay];
    if (peer === undefined || relay === undefined || this.#hasEnded) return;
    const { libc } = this.#space.loop;
    for (let moves = 0; !this.#isClosed && !peer.#isClosed;) {
      if (this.#held > 0) {
        if (!peer.#isWritable) return;
        if (!this.#sendHeld(peer)) return;
        continue;
      }
      if (!this.#isReadable) return;
      if (moves >= MOVES_PER_TURN) return this.#queue();
      moves += this.#isBulk ? MOVES_PER_PIPE : 1;
      const count = this.#isDrained ? 0 : this.#isBulk ? this.#fillPipe() : this.#copy(peer);
      if (count > 0) relay.onData(this, count);
      else if (count === 0) {
        // A reset that follows the end of the stream is reported as the end alone.
        if (this.#isBroken) return relay.abort();
        this.#hasEnded = true;
        this.#dropPipe();
        if (peer.#hasEnded) return relay.close();
        return libc.endStream(peer.fd);
      } else if (count === WOULD_BLOCK) {
        this.#isReadable = false;
        return this.#dropPipe();
      } else return relay.abort();
    }
  }

  /** Returns whether all was sent. */
  #sendHeld(peer: SocketConnection): boolean {
    const { libc } = this.#space.loop;
    const count = this.#pending
      ? libc.send(peer.fd, this.#pending, this.#held)
      : libc.splice(this.#pipe!.from, peer.fd, this.#held);
    if (count < 0) {
      if (count === WOULD_BLOCK) peer.#isWritable = false;
      else this.#relay?.abort();
      return false;
    }
    this.#held -= count;
    if (this.#held === 0) this.#pending = undefined;
    else if (this.#pending) this.#pending = this.#pending.subarray(count);
    return true;
  }

  #fillPipe(): number {
    const { libc } = this.#space.loop;
    this.#pipe ??= this.#space.takePipe();
    if (this.#pipe === undefined) {
      this.#isBulk = false;
      return this.#copy(this.#peer!);
    }
    const count = libc.splice(this.fd, this.#pipe.to, PIPE_BYTES);
    if (count <= 0) return count;
    this.#held = count;
    if (count >= BULK_BYTES) this.#smallMoves = 0;
    else if (++this.#smallMoves > SMALL_MOVES) this.#isBulk = false;
    return count;
  }

  #copy(peer: SocketConnection): number {
    const { buffer, loop: { libc } } = this.#space;
    const count = libc.receive(this.fd, buffer, buffer.length);
    if (count <= 0) return count;
    // It was all that there was; what comes later, unless it had ended before, is reported.
    if (count < buffer.length) {
      if (this.#isEnding) this.#isDrained = true;
      else this.#isReadable = false;
    }
    const sent = peer.#isWritable ? libc.send(peer.fd, buffer, count) : WOULD_BLOCK;
    if (sent < 0 && sent !== WOULD_BLOCK) return sent;
    if (sent < count) {
      if (sent < 0) peer.#isWritable = false;
      const from = Math.max(0, sent);
      this.#pending = buffer.slice(from, count);
      this.#held = count - from;
    }
    if (count >= BULK_BYTES) {
      this.#isBulk = true;
      this.#smallMoves = 0;
    } else if (this.#pipe) this.#dropPipe();
    return count;
  }

  #queue(): void {
    if (this.#isQueued) return;
    this.#isQueued = true;
    this.#space.loop.again(() => {
      this.#isQueued = false;
      this.pump();
    });
  }

  #dropPipe(): void {
    if (this.#pipe === undefined) return;
    this.#space.givePipe(this.#pipe, this.#held === 0);
    this.#pipe = undefined;
  }

  #watch(): void {
    if (this.#isWatched) return;
    this.#isWatched = true;
    this.#space.loop.watch(this.fd, this, WATCHED);
  }

  #read(): void {
    const reader = this.#reader!;
    const { buffer, done } = reader;
    const count = this.#space.loop.libc.receive(this.fd, buffer, buffer.length);
    if (count === WOULD_BLOCK) return;
    this.#reader = undefined;
    if (count < 0) done.reject(new SystemError("recv", -count));
    else done.resolve(count === 0 ? null : count);
  }
}

/** Copies between two connections. */
export class SocketRelay implements Relay {
  readonly #space: ConnectionSpace;
  readonly #client: SocketConnection;
  readonly #endpoint: SocketConnection;
  readonly #user: RelayUser;
  #open = 2;

  constructor(
    space: ConnectionSpace,
    client: SocketConnection,
    endpoint: SocketConnection,
    user: RelayUser,
    first: Uint8Array | undefined,
  ) {
    this.#space = space;
    this.#client = client;
    this.#endpoint = endpoint;
    this.#user = user;
    client.copyTo(endpoint, this, first);
    endpoint.copyTo(client, this, undefined);
    client.pump();
    endpoint.pump();
  }

  closeIfGone(): Promise<void> {
    if (this.#client.isBroken || this.#endpoint.isBroken) this.close();
    return Promise.resolve();
  }

  onData(from: SocketConnection, bytes: number): void {
    this.#user.onData(from === this.#client, bytes);
  }

  /** One of the connections was closed. */
  onClosed(): void {
    if (--this.#open === 0) this.#user.onEnded();
  }

  close(): void {
    this.#user.close();
  }

  /** One connection broke: the other one is reset, too. */
  abort(): void {
    if (this.#open < 2) return;
    const { libc } = this.#space.loop;
    libc.resetOnClose(this.#client.fd);
    libc.resetOnClose(this.#endpoint.fd);
    this.#user.close();
  }
}
