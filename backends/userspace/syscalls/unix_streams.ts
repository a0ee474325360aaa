import type { EventLoop, FdOwner } from "./event_loop.ts";
import { type Bytes, EPOLL, WOULD_BLOCK } from "./libc.ts";
import { Listener } from "./listener.ts";
import { encodePath } from "./socket_address.ts";

/** Bytes of one read. */
const READ_BYTES = 65_536;

/** Who uses a stream. */
export interface StreamUser {
  /** The bytes are others afterwards. */
  onData(data: Uint8Array): void;
  /** All that was written has gone to the kernel, some of it later than it was written. */
  onDrained?(): void;
  /** The other end has closed it, or it broke; it is closed. Not called after {@linkcode UnixStream.close}. */
  onEnd(): void;
}

/** A connection by a Unix socket: bytes in order, both ways. */
export class UnixStream implements FdOwner {
  readonly #loop: EventLoop;
  readonly #fd: number;
  readonly #buffer: Bytes;
  /** Who gets what comes. To be set in the turn in which the stream was made. */
  user: StreamUser | undefined;
  readonly #queue: Uint8Array[] = [];
  #queuedBytes = 0;
  #isBlocked = false;
  #isClosed = false;

  constructor(loop: EventLoop, fd: number, buffer: Bytes) {
    this.#loop = loop;
    this.#fd = fd;
    this.#buffer = buffer;
    loop.own(fd, this, EPOLL.IN);
  }

  /** The user (uid) that the process at the other end had when it connected or listened. */
  get peerUser(): number {
    return this.#loop.libc.peerUser(this.#fd);
  }

  /** Bytes that wait for the other end to read. */
  get queuedBytes(): number {
    return this.#queuedBytes;
  }

  /** Sends data, which must stay as it is while {@linkcode queuedBytes} is not 0. */
  write(data: Uint8Array): void {
    if (this.#isClosed || data.length === 0) return;
    this.#queue.push(data);
    this.#queuedBytes += data.length;
    if (!this.#isBlocked) this.#flush();
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#loop.close(this.#fd, this);
  }

  onEvents(mask: number): void {
    if (mask & EPOLL.OUT) {
      this.#flush();
      if (!this.#isBlocked) this.user?.onDrained?.();
    }
    if (this.#isClosed || (mask & ~EPOLL.OUT) === 0) return;
    const count = this.#loop.libc.receive(this.#fd, this.#buffer, this.#buffer.length);
    if (count > 0) return this.user?.onData(this.#buffer.subarray(0, count));
    if (count === WOULD_BLOCK) return;
    this.close();
    this.user?.onEnd();
  }

  #flush(): void {
    while (this.#queue.length > 0) {
      const data = this.#queue[0]!;
      const count = this.#loop.libc.send(this.#fd, data, data.length);
      if (count < 0) {
        // Of a stream that broke, the next read reports the end.
        if (count !== WOULD_BLOCK) this.#queue.length = this.#queuedBytes = 0;
        break;
      }
      this.#queuedBytes -= count;
      if (count === data.length) this.#queue.shift();
      else this.#queue[0] = data.subarray(count);
    }
    const isBlocked = this.#queue.length > 0;
    if (isBlocked === this.#isBlocked) return;
    this.#isBlocked = isBlocked;
    this.#loop.rewatch(this.#fd, this, EPOLL.IN | (isBlocked ? EPOLL.OUT : 0));
  }
}

/**
 * Accepts streams at a path, where no file may be. Throws a SystemError, e.g. `EADDRINUSE`. The file stays
 * when the listener is closed, and so do the streams.
 */
export function listenUnixStreams(
  loop: EventLoop,
  path: string,
  taker: {
    onStream(stream: UnixStream): void;
    onError(error: unknown): void;
  },
): Listener {
  const { libc } = loop;
  const buffer = new Uint8Array(READ_BYTES);
  const fd = libc.socket("unix", "stream");
  bound(() => libc.bind(fd, encodePath(path)), () => libc.close(fd));
  const listener = new Listener(loop, fd);
  listener.serve({
    onAccepted: (stream) => taker.onStream(new UnixStream(loop, stream, buffer)),
    onError: (error) => taker.onError(error),
  });
  return listener;
}

/** Connects to a Unix socket. Throws a SystemError, e.g. `ECONNREFUSED` or `ENOENT`. */
export function connectUnixStream(loop: EventLoop, path: string): UnixStream {
  const { libc } = loop;
  const fd = libc.socket("unix", "stream");
  // A Unix socket is connected at once or not at all (EAGAIN: its queue is full).
  bound(() => libc.connect(fd, encodePath(path)), () => libc.close(fd));
  return new UnixStream(loop, fd, new Uint8Array(READ_BYTES));
}

function bound(attempt: () => void, giveUp: () => void): void {
  try {
    attempt();
  } catch (error) {
    giveUp();
    throw error;
  }
}
