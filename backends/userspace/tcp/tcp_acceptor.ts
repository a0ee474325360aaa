import type { ConnectionSource, ConnectionTaker, EngineConnection } from "../engine.ts";
import type { Forwarding } from "../forwarding.ts";
import type { ServiceAddress } from "../listeners.ts";
import type { TcpForwarder } from "./tcp_forwarder.ts";

/** Number of silent connections to close when no files are left. */
const RELIEF = 16;

/** Passes the connections of a listening socket on to a forwarder. */
export class TcpAcceptor implements ConnectionTaker {
  readonly #forwarding: Forwarding;
  readonly #source: ConnectionSource;
  #forwarder: Pick<TcpForwarder, "accept">;
  #at: ServiceAddress;

  constructor(
    forwarding: Forwarding,
    source: ConnectionSource,
    forwarder: Pick<TcpForwarder, "accept">,
    at: ServiceAddress,
  ) {
    this.#forwarding = forwarding;
    this.#source = source;
    this.#forwarder = forwarder;
    this.#at = at;
  }

  start(): void {
    const { loops } = this.#forwarding;
    loops.add();
    void this.#source.serve(this).then(() => loops.remove());
  }

  /** Gives the connections from now on to a forwarder. */
  assign(forwarder: TcpForwarder, at: ServiceAddress): void {
    this.#forwarder = forwarder;
    this.#at = at;
  }

  /** Closes the socket. Connections that were accepted stay. */
  close(): void {
    this.#source.close();
  }

  take(connection: EngineConnection): void {
    this.#forwarder.accept(connection, this.#at);
  }

  onError(error: unknown): void {
    const report = { error, relief: RELIEF, socket: this.#at.socket };
    this.#forwarding.room.reportError("Cannot accept a connection", report);
  }
}
