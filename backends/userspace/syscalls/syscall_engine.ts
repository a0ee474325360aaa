import { type IpAddress, isUnspecified } from "../../../lib/net/ip_address.ts";
import type { Clock } from "../../../lib/os/clock.ts";
import { type SocketAddress, unixSocketWithin } from "../../../lib/os/network.ts";
import {
  Abandoned,
  type ConnectAttempt,
  type ConnectionSource,
  type ConnectionTaker,
  type DatagramSocket,
  type Engine,
  type EngineConnection,
  type FlowSocket,
  type Relay,
  type RelayUser,
} from "../engine.ts";
import { ConnectionSpace, SocketConnection, SocketRelay } from "./connections.ts";
import { DatagramSpace, FlowDatagrams, ListeningDatagrams } from "./datagrams.ts";
import type { EventLoop } from "./event_loop.ts";
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

  connect(endpoint: SocketAddress, attempt: ConnectAttempt, path: string | undefined): void {
    let connection: SocketConnection;
    try {
      connection = this.#connect(endpoint, attempt, path);
    } catch (error) {
      return attempt.onFailed(error);
    }
    attempt.onAbandoned = () => {
      connection.close();
      attempt.onFailed(new Abandoned());
    };
    if (attempt.isAbandoned) attempt.onAbandoned();
  }

  #connect(
    endpoint: SocketAddress,
    attempt: ConnectAttempt,
    path: string | undefined,
  ): SocketConnection {
    const { libc } = this.#loop;
    if (path !== undefined) {
      const address = encodePath(unixSocketWithin(this.#unixSocketFolders, path));
      const fd = libc.socket("unix", "stream");
      return new SocketConnection(this.#connections, fd, endpoint).connect(address, attempt);
    }
    const address = encodeAddress(endpoint);
    const fd = this.#open(endpoint, "stream", (fd) => {
      libc.enable(fd, "noDelay");
      libc.enable(fd, "keepAlive");
    });
    return new SocketConnection(this.#connections, fd, endpoint).connect(address, attempt);
  }

  relay(
    client: EngineConnection,
    endpoint: EngineConnection,
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
    const local = isUnspecified(this.addr.hostname as IpAddress) ? undefined : this.addr;
    this.#listener.serve({
      onAccepted: (fd) => {
        const client = decodeAddress(this.#space.loop.libc.address);
        taker.take(new SocketConnection(this.#space, fd, client, local));
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
