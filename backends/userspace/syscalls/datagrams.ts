import type { SocketAddress } from "../../../lib/os/network.ts";
import type {
  DatagramReceiver,
  DatagramSender,
  DatagramSocket,
  FlowReceiver,
  FlowSocket,
} from "../engine.ts";
import type { EventLoop, FdOwner } from "./event_loop.ts";
import { type Bytes, EPOLL, type Libc, MESSAGE_BYTES, WOULD_BLOCK } from "./libc.ts";
import { anyAddress, decodeAddress, encodeAddress, familyOf } from "./socket_address.ts";

/** Datagrams of one call. */
const BATCH = 16;
/** No datagram is longer than 65,527 bytes. */
const SLOT = 65_536;
/** Bytes of the longer address, that of IPv6, rounded up. */
const NAME = 32;
/** Batches that one socket may receive in one turn. */
const BATCHES_PER_TURN = 4;

/**
 * Buffers and headers of `recvmmsg` or `sendmmsg`: `struct mmsghdr` with one `iovec` each. They hold
 * addresses of each other, so they live as long as the process.
 */
class Batch {
  readonly data: Bytes;
  readonly names = new Uint8Array(BATCH * NAME);
  readonly headers: Bytes = new Uint8Array(BATCH * MESSAGE_BYTES);
  readonly #words = new Uint32Array(this.headers.buffer);
  readonly #shorts = new Uint16Array(this.names.buffer);
  readonly #wide = new BigUint64Array(this.headers.buffer);
  readonly #vectors = new Uint32Array(BATCH * 4);
  readonly #dataAt: number;

  constructor(libc: Libc, data: Bytes) {
    this.data = data;
    // Addresses of a process have 48 bits.
    this.#dataAt = Number(libc.addressOf(data));
    const names = libc.addressOf(this.names);
    const vectors = libc.addressOf(this.#vectors);
    for (let index = 0; index < BATCH; index++) {
      this.#wide[index * 8] = names + BigInt(index * NAME);
      this.#wide[index * 8 + 2] = vectors + BigInt(index * 16);
      this.#wide[index * 8 + 3] = 1n;
      this.point(index, index * SLOT, SLOT, NAME);
    }
  }

  /** Lets a message be some bytes of the data, to or from an address of so many bytes. */
  point(index: number, offset: number, length: number, nameLength: number): void {
    if (offset + length > this.data.length) throw new RangeError(`${length} bytes at ${offset}`);
    const address = this.#dataAt + offset;
    this.#vectors[index * 4] = address;
    this.#vectors[index * 4 + 1] = address / 2 ** 32;
    this.#vectors[index * 4 + 2] = length;
    this.#words[index * 16 + 2] = nameLength;
  }

  /** A received message has been read: it takes another one. */
  empty(index: number): void {
    this.#words[index * 16 + 2] = NAME;
  }

  /** The bytes of the sender's address. */
  nameOf(index: number): Bytes {
    return this.names.slice(index * NAME, index * NAME + this.#words[index * 16 + 2]!);
  }

  /** A number that no other sender of IPv4 has; `undefined` for IPv6. */
  numberOf(index: number): number | undefined {
    if (this.#words[index * 16 + 2] !== 16) return undefined;
    const at = index * NAME >> 1;
    return (this.#shorts[at + 1]! * 65_536 + this.#shorts[at + 2]!) * 65_536 +
      this.#shorts[at + 3]!;
  }

  received(index: number): Bytes {
    const at = index * SLOT;
    return this.data.subarray(at, at + Math.min(SLOT, this.#words[index * 16 + 14]!));
  }
}

/** Senders that are remembered; then all are forgotten. */
const MOST_SENDERS = 16_384;

/** The address of a sender, also as the kernel has it. */
class Sender implements DatagramSender {
  readonly hostname: string;
  readonly port: number;
  key?: string;

  constructor(readonly bytes: Bytes) {
    ({ hostname: this.hostname, port: this.port } = decodeAddress(bytes));
  }
}

/** What all datagram sockets of a loop share. */
export class DatagramSpace {
  readonly loop: EventLoop;
  readonly received: Batch;
  /** Those of the received datagrams that are to go on, all by one socket. */
  readonly #sending: Batch;
  /** For data that was not received. */
  readonly #scratch: Bytes;
  /** By their number: making one takes as long as a system call. */
  readonly #senders = new Map<number, Sender>();
  #sender: Datagrams | undefined;
  #count = 0;

  constructor(loop: EventLoop) {
    this.loop = loop;
    const data = new Uint8Array((BATCH + 1) * SLOT);
    this.#scratch = data.subarray(BATCH * SLOT);
    this.received = new Batch(loop.libc, data);
    this.#sending = new Batch(loop.libc, data);
  }

  /** The sender of a received datagram, which mostly is one of those before. */
  senderOf(index: number): Sender {
    const number = this.received.numberOf(index);
    const known = number === undefined ? undefined : this.#senders.get(number);
    if (known) return known;
    const sender = new Sender(this.received.nameOf(index));
    if (number !== undefined) {
      if (this.#senders.size >= MOST_SENDERS) this.#senders.clear();
      this.#senders.set(number, sender);
    }
    return sender;
  }

  /** Sends data. What was received waits for what else the same socket sends in this turn. */
  send(socket: Datagrams, data: Uint8Array, to: Bytes | undefined): void {
    // The number of a closed socket may be that of another file.
    if (socket.isClosed || data.length >= SLOT) return socket.lose(1);
    const isOwn = data.buffer === this.#sending.data.buffer;
    if (!isOwn || this.#sender !== socket || this.#count === BATCH) this.flush();
    if (!isOwn) this.#scratch.set(data);
    this.#sender = socket;
    if (to) this.#sending.names.set(to, this.#count * NAME);
    const offset = isOwn ? data.byteOffset : this.#scratch.byteOffset;
    this.#sending.point(this.#count++, offset, data.length, to?.length ?? 0);
    if (!isOwn) this.flush();
  }

  /** A socket is about to be closed. */
  forget(socket: Datagrams): void {
    if (this.#sender === socket) this.flush();
  }

  /** Sends what waits. */
  flush(): void {
    const [socket, count] = [this.#sender, this.#count];
    this.#sender = undefined;
    this.#count = 0;
    if (socket === undefined) return;
    const { headers } = this.#sending;
    let isRetry = false;
    for (let sent = 0; sent < count;) {
      const rest = sent === 0 ? headers : headers.subarray(sent * MESSAGE_BYTES);
      const result = this.loop.libc.sendMessages(socket.fd, rest, count - sent);
      if (result === WOULD_BLOCK) return socket.lose(count - sent);
      // A socket first reports the error of an earlier datagram (ICMP), and sends nothing.
      const mayRetry: boolean = result < 0 && !isRetry;
      if (result < 0 && isRetry) socket.lose(1);
      sent += mayRetry ? 0 : Math.max(1, result);
      isRetry = mayRetry;
    }
  }
}

const NOBODY: DatagramSender = { hostname: "", port: 0 };

/** A UDP socket. */
class Datagrams implements FdOwner {
  readonly fd: number;
  protected readonly space: DatagramSpace;
  /** Whether all datagrams come from one sender. */
  protected readonly isConnected: boolean = false;
  readonly #closed = Promise.withResolvers<void>();
  isClosed = false;
  #receiver: DatagramReceiver | undefined;

  /** Takes over an open socket. */
  constructor(space: DatagramSpace, fd: number) {
    this.space = space;
    this.fd = fd;
    space.loop.own(fd, this, 0);
  }

  get addr(): SocketAddress {
    return decodeAddress(this.space.loop.libc.ownAddress(this.fd));
  }

  receive(receiver: DatagramReceiver): Promise<void> {
    this.#receiver = receiver;
    this.space.loop.watch(this.fd, this, EPOLL.IN);
    return this.#closed.promise;
  }

  close(): void {
    if (this.isClosed) return;
    this.isClosed = true;
    this.#receiver = undefined;
    this.space.forget(this);
    this.space.loop.close(this.fd, this);
    this.#closed.resolve();
  }

  /** Datagrams could not be sent. */
  lose(count: number): void {
    for (let lost = 0; lost < count; lost++) this.#receiver?.onLost?.();
  }

  onEvents(): void {
    const { received, loop: { libc } } = this.space;
    for (let batches = 0; batches < BATCHES_PER_TURN && !this.isClosed; batches++) {
      const count = libc.receiveMessages(this.fd, received.headers, BATCH);
      // An error is that of a datagram that was sent: the endpoint does not listen, or is not there.
      for (let index = 0; index < count; index++) this.#take(received, index);
      this.space.flush();
      if (count < BATCH) return;
    }
  }

  #take(received: Batch, index: number): void {
    const receiver = this.#receiver;
    const data = received.received(index);
    const sender = this.isConnected ? NOBODY : this.space.senderOf(index);
    received.empty(index);
    if (receiver === undefined) return;
    try {
      void receiver.take(data, sender)?.catch(() => receiver.onLost?.());
    } catch {
      receiver.onLost?.();
    }
  }
}

/** A UDP socket that anyone may send to. */
export class ListeningDatagrams extends Datagrams implements DatagramSocket {
  serve(receiver: DatagramReceiver): Promise<void> {
    return this.receive(receiver);
  }

  send(data: Uint8Array, to: SocketAddress): void {
    this.space.send(this, data, to instanceof Sender ? to.bytes : encodeAddress(to));
  }
}

/** A UDP socket that is connected to an endpoint: the kernel drops what others send. */
export class FlowDatagrams extends Datagrams implements FlowSocket {
  protected override readonly isConnected = true;
  readonly port: number;

  /** Takes over an open socket. Throws a {@linkcode SystemError}; then it is closed. */
  constructor(space: DatagramSpace, fd: number, endpoint: SocketAddress) {
    super(space, fd);
    this.#connect(endpoint);
    this.port = this.addr.port;
  }

  serve(receiver: FlowReceiver): Promise<void> {
    return this.receive(receiver);
  }

  send(data: Uint8Array): void {
    this.space.send(this, data, undefined);
  }

  move(endpoint: SocketAddress): void {
    const { libc } = this.space.loop;
    this.space.forget(this);
    // The route, and with it the own address, may be another one; the port stays.
    libc.disconnect(this.fd);
    libc.bind(
      this.fd,
      encodeAddress({ hostname: anyAddress(familyOf(endpoint)), port: this.port }),
    );
    this.#connect(endpoint);
    // What came from the former endpoint.
    const { received } = this.space;
    for (let count = BATCH; count === BATCH;) {
      count = libc.receiveMessages(this.fd, received.headers, BATCH);
      for (let index = 0; index < count; index++) received.empty(index);
    }
  }

  #connect(endpoint: SocketAddress): void {
    try {
      this.space.loop.libc.connectDatagrams(this.fd, encodeAddress(endpoint));
    } catch (error) {
      this.close();
      throw error;
    }
  }
}
