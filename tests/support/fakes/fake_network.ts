/**
 * A network without sockets, for what loopback can't be made to do: endpoints that never answer, and
 * a process that has no sockets left.
 */
import type {
  InterfaceAddress,
  Network,
  SocketAddress,
  TcpConnection,
  TcpListener,
  UdpSocket,
} from "../../../lib/os/network.ts";
import { formatHostPort } from "../../../lib/net/port.ts";

/** The answer of an endpoint to a connection attempt. */
export type FakeAnswer = "accept" | "refuse" | "hang" | "out-of-sockets" | "out-of-ports";

/** An error as Deno throws it for a system call. */
export function systemError(code: string): Error {
  return Object.assign(new Error(`${code} (fake)`), { code });
}

/** A connection that stays silent until it is ended, broken or closed. */
export class FakeConnection implements TcpConnection {
  readonly localAddr: SocketAddress = { hostname: "127.0.0.1", port: 1 };
  readonly remoteAddr: SocketAddress;
  closed = false;
  #reading: PromiseWithResolvers<number | null> | undefined;

  constructor(remoteAddr: SocketAddress = { hostname: "192.0.2.1", port: 40_000 }) {
    this.remoteAddr = remoteAddr;
  }

  read(): Promise<number | null> {
    if (this.closed) return Promise.reject(new Deno.errors.BadResource("closed (fake)"));
    this.#reading = Promise.withResolvers();
    return this.#reading.promise;
  }

  /** The peer sends a byte. */
  receive(): void {
    this.#reading?.resolve(1);
  }

  /** The peer ends its stream. */
  end(): void {
    this.#reading?.resolve(null);
  }

  /** The peer resets the connection. */
  reset(): void {
    this.#reading?.reject(systemError("ECONNRESET"));
  }

  write(data: Uint8Array): Promise<number> {
    return Promise.resolve(data.length);
  }

  closeWrite(): Promise<void> {
    return Promise.resolve();
  }

  close(): void {
    if (this.closed) throw new Deno.errors.BadResource("closed twice (fake)");
    this.closed = true;
    this.#reading?.reject(new Deno.errors.Interrupted("closed (fake)"));
  }

  setNoDelay(): void {}

  setKeepAlive(): void {}
}

/** A listener that is handed connections, or errors, by the test. */
export class FakeListener implements TcpListener {
  closed = false;
  /** Calls of {@linkcode accept}. */
  asked = 0;
  readonly #queue: (TcpConnection | Error)[] = [];
  #waiting: PromiseWithResolvers<TcpConnection> | undefined;

  constructor(readonly addr: SocketAddress) {}

  offer(...next: readonly (TcpConnection | Error)[]): void {
    this.#queue.push(...next);
    this.#deliver();
  }

  accept(): Promise<TcpConnection> {
    this.asked++;
    if (this.closed) return Promise.reject(new Deno.errors.BadResource("closed (fake)"));
    this.#waiting = Promise.withResolvers();
    const { promise } = this.#waiting;
    this.#deliver();
    return promise;
  }

  close(): void {
    this.closed = true;
    this.#waiting?.reject(new Deno.errors.BadResource("closed (fake)"));
  }

  #deliver(): void {
    if (!this.#waiting) return;
    const next = this.#queue.shift();
    if (!next) return;
    if (next instanceof Error) this.#waiting.reject(next);
    else this.#waiting.resolve(next);
    this.#waiting = undefined;
  }
}

/** A network whose endpoints answer as the test defines. */
export class FakeNetwork implements Network {
  /** By `host:port`; all others accept. */
  readonly answers = new Map<string, FakeAnswer>();
  /** Every attempt to connect, as `host:port`. */
  readonly dials: string[] = [];
  readonly connections: FakeConnection[] = [];
  readonly listeners: FakeListener[] = [];

  listenTcp(address: SocketAddress): FakeListener {
    const listener = new FakeListener(address);
    this.listeners.push(listener);
    return listener;
  }

  connectTcp(address: SocketAddress, signal?: AbortSignal): Promise<TcpConnection> {
    const target = formatHostPort(address.hostname, address.port);
    this.dials.push(target);
    switch (this.answers.get(target) ?? "accept") {
      case "refuse":
        return Promise.reject(systemError("ECONNREFUSED"));
      case "out-of-ports":
        return Promise.reject(systemError("EADDRNOTAVAIL"));
      case "out-of-sockets":
        return Promise.reject(systemError("EMFILE"));
      case "hang":
        return new Promise((_, reject) => {
          signal?.addEventListener("abort", () => reject(signal.reason), { once: true });
        });
      case "accept": {
        const connection = new FakeConnection(address);
        this.connections.push(connection);
        return Promise.resolve(connection);
      }
    }
  }

  async tryConnectTcp(
    address: SocketAddress,
    { signal }: { readonly signal: AbortSignal },
  ): Promise<void> {
    (await this.connectTcp(address, signal)).close();
  }

  listenUdp(): UdpSocket {
    throw systemError("EMFILE");
  }

  interfaceAddresses(): readonly InterfaceAddress[] {
    return [];
  }
}
