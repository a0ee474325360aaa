/** A TCP relay that a test can let fail in the ways in which networks fail. */
import { connect, createServer, type Server, type Socket } from "node:net";

/** Relays connections to a port of 127.0.0.1. */
export class TcpRelay implements AsyncDisposable {
  readonly #server: Server;
  readonly #pairs = new Set<readonly [Socket, Socket]>();
  readonly #frozen = new WeakSet<Socket>();
  #swallowsNew = false;
  #accepted = 0;

  private constructor(server: Server) {
    this.#server = server;
  }

  /** Listens on a free port. */
  static async start(targetPort: number): Promise<TcpRelay> {
    const server = createServer();
    const relay = new TcpRelay(server);
    server.on("connection", (client) => relay.#relay(client, targetPort));
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    return relay;
  }

  get port(): number {
    const address = this.#server.address();
    if (address === null || typeof address === "string") throw new Error("Relay is closed");
    return address.port;
  }

  /** Connections taken so far. */
  get accepted(): number {
    return this.#accepted;
  }

  /** Connections open now. */
  get open(): number {
    return this.#pairs.size;
  }

  /** Swallows every byte of the connections that are open now, for ever; new ones work. */
  freezeOpen(): void {
    for (const pair of this.#pairs) for (const socket of pair) this.#frozen.add(socket);
  }

  /** Swallows every byte of the connections that are opened from now on, or no longer does. */
  swallowNew(on: boolean): void {
    this.#swallowsNew = on;
  }

  /** Ends every open connection with FIN. */
  closeOpen(): void {
    for (const [client, server] of [...this.#pairs]) {
      client.end();
      server.destroy();
    }
  }

  /** Ends every open connection with RST. */
  resetOpen(): void {
    for (const [client, server] of [...this.#pairs]) {
      client.resetAndDestroy();
      server.destroy();
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const closed = new Promise((resolve) => this.#server.close(resolve));
    for (const pair of this.#pairs) for (const socket of pair) socket.destroy();
    await closed;
  }

  #relay(client: Socket, port: number): void {
    this.#accepted++;
    const server = connect({ host: "127.0.0.1", port });
    const pair = [client, server] as const;
    this.#pairs.add(pair);
    if (this.#swallowsNew) { for (const socket of pair) this.#frozen.add(socket); }
    for (const [from, to] of [pair, [server, client]] as const) {
      from.on("data", (data) => {
        if (!this.#frozen.has(from)) to.write(data);
      });
      from.on("end", () => to.end());
      from.on("error", () => to.destroy());
      from.on("close", () => {
        to.destroy();
        this.#pairs.delete(pair);
      });
    }
  }
}
