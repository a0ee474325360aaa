import type { ServicePortKey } from "../../../lib/proxy/service_port_name.ts";
import type { ConnectionSource, ConnectionTaker, EngineConnection } from "../engine.ts";
import type { Forwarding } from "../forwarding.ts";
import type { ServiceAddress } from "../listeners.ts";
import { type ConnectionTarget, ServerNameGate } from "./server_name_gate.ts";

/** Number of silent connections to close when no files are left. */
const RELIEF = 16;

/** Passes the connections of a listening socket on to a forwarder, or to several by server names. */
export class TcpAcceptor implements ConnectionTaker {
  readonly #forwarding: Forwarding;
  readonly #source: ConnectionSource;
  #taker: Pick<ConnectionTarget, "accept">;
  #at: ServiceAddress;
  /** `undefined` = the socket was never shared. */
  #gate: ServerNameGate | undefined;

  constructor(
    forwarding: Forwarding,
    source: ConnectionSource,
    forwarder: ConnectionTarget,
    at: ServiceAddress,
  ) {
    this.#forwarding = forwarding;
    this.#source = source;
    this.#taker = forwarder;
    this.#at = at;
    this.assign(forwarder, at);
  }

  /** Whether forwarders share the socket, or did. */
  get isShared(): boolean {
    return this.#gate !== undefined;
  }

  start(): void {
    const { loops } = this.#forwarding;
    loops.add();
    void this.#source.serve(this).then(() => loops.remove());
  }

  /** Gives the connections from now on to a forwarder: all, or those for the names of the address. */
  assign(forwarder: ConnectionTarget, at: ServiceAddress): void {
    this.#at = at;
    if (at.names) this.#gate ??= new ServerNameGate(this.#forwarding, at.socket);
    // What waits in a gate goes to the only one that is left.
    this.#gate?.share(forwarder, at);
    this.#taker = at.names && this.#gate ? this.#gate : forwarder;
  }

  /** A forwarder that shares the socket gets no more connections. */
  leave(key: ServicePortKey): void {
    this.#gate?.leave(key);
  }

  /** Closes the socket. Connections that were accepted stay. */
  close(): void {
    this.#source.close();
  }

  take(connection: EngineConnection): void {
    this.#taker.accept(connection, this.#at);
  }

  onError(error: unknown): void {
    const report = { error, relief: RELIEF, socket: this.#at.socket };
    this.#forwarding.room.reportError("Cannot accept a connection", report);
  }
}
