import type { Clock } from "../../../lib/os/clock.ts";
import {
  type SocketAddress,
  type TcpConnection,
  unixSocketWithin,
} from "../../../lib/os/network.ts";
import {
  Abandoned,
  type ConnectAttempt,
  type ConnectionSource,
  type ConnectionTaker,
  type DatagramSocket,
  type Engine,
  type FlowSocket,
  type Relay,
  type RelayUser,
} from "../engine.ts";
import { ConnectionSpace, SocketConnection, SocketRelay } from "./connections.ts";
import { DatagramSpace, FlowDatagrams, ListeningDatagrams } from "./datagrams.ts";
import type { EventLoop } from "./event_loop.ts";
import type { SystemError } from "./libc.ts";
import { Listener } from "./listener.ts";
import { decodeAddress, encodeAddress, encodePath, familyOf } from "./socket_address.ts";

/** Sockets of the kernel, by system calls, all served by one loop. */
export class SyscallEngine implements Engine {
  readonly clock: Clock;
  readonly #loop: EventLoop;
  readonly #connections: ConnectionSpace;
  readonly #unixSocketFolders: readonly string[];
  #datagrams: DatagramSpace | undefined;

  constructor(loop: EventLoop, unixSocketFolders: readonly string[] = []) {
    this.clock = loop.clock;
    this.#loop = loop;
    this.#connections = new ConnectionSpace(loop);
    this.#unixSocketFolders = unixSocketFolders;
  }

  listenTcp(at: SocketAddress, isShared = false): ConnectionSource {
    const { libc } = this.#loop;
    const fd = this.#open(at, "stream", (fd) => {
      libc.enable(fd, "reuseAddress");
      if (isShared) libc.enable(fd, "reusePort");
      // Those that are accepted inherit them.
      libc.enable(fd, "noDelay");
      libc.enable(fd, "keepAlive");
      libc.bind(fd, encodeAddress(at));
    });
    return new AcceptedConnections(this.#connections, new Listener(this.#loop, fd));
  }

  async connect(
    endpoint: SocketAddress,
    attempt: ConnectAttempt,
    path: string | undefined,
  ): Promise<TcpConnection> {
    const { libc } = this.#loop;
    const real = path === undefined ? undefined : unixSocketWithin(this.#unixSocketFolders, path);
    const fd = real === undefined
      ? this.#open(endpoint, "stream", (fd) => {
        libc.enable(fd, "noDelay");
        libc.enable(fd, "keepAlive");
      })
      : libc.socket("unix", "stream");
    const connection = new SocketConnection(this.#connections, fd, endpoint);
    const done = Promise.withResolvers<TcpConnection>();
    attempt.onAbandoned = () => {
      connection.close();
      done.reject(new Abandoned());
    };
    connection.connect(real === undefined ? encodeAddress(endpoint) : encodePath(real), {
      onConnected: () => done.resolve(connection),
      onFailed: (error: SystemError) => done.reject(error),
    });
    if (attempt.isAbandoned) attempt.onAbandoned();
    return await done.promise;
  }

  relay(
    client: TcpConnection,
    endpoint: TcpConnection,
    user: RelayUser,
    first?: Uint8Array,
  ): Relay {
    if (!(client instanceof SocketConnection) || !(endpoint instanceof SocketConnection)) {
      throw new TypeError("a connection belongs to another engine");
    }
    return new SocketRelay(this.#connections, client, endpoint, user, first);
  }

  listenUdp(at: SocketAddress): DatagramSocket {
    const fd = this.#open(at, "datagram", (fd) => this.#loop.libc.bind(fd, encodeAddress(at)));
    return new ListeningDatagrams(this.#space, fd);
  }

  openFlow(endpoint: SocketAddress): FlowSocket {
    return new FlowDatagrams(this.#space, this.#open(endpoint, "datagram"), endpoint);
  }

  /** Closes what is kept for later use. */
  close(): void {
    this.#connections.close();
  }

  get #space(): DatagramSpace {
    return this.#datagrams ??= new DatagramSpace(this.#loop);
  }

  #open(at: SocketAddress, type: "stream" | "datagram", prepare?: (fd: number) => void): number {
    const { libc } = this.#loop;
    const family = familyOf(at);
    const fd = libc.socket(family, type);
    try {
      if (family === "IPv6") libc.enable(fd, "onlyIpv6");
      prepare?.(fd);
      return fd;
    } catch (error) {
      libc.close(fd);
      throw error;
    }
  }
}

/** The connections that a socket accepts. */
class AcceptedConnections implements ConnectionSource {
  readonly addr: SocketAddress;
  readonly #space: ConnectionSpace;
  readonly #listener: Listener;
  readonly #closed = Promise.withResolvers<void>();

  constructor(space: ConnectionSpace, listener: Listener) {
    this.#space = space;
    this.#listener = listener;
    this.addr = decodeAddress(space.loop.libc.ownAddress(listener.fd));
  }

  serve(taker: ConnectionTaker): Promise<void> {
    this.#listener.serve({
      onAccepted: (fd) => {
        const client = decodeAddress(this.#space.loop.libc.address);
        taker.take(new SocketConnection(this.#space, fd, client));
      },
      onError: (error) => taker.onError(error),
    });
    return this.#closed.promise;
  }

  close(): void {
    this.#listener.close();
    this.#closed.resolve();
  }
}
