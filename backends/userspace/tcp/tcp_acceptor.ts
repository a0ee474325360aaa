import type { TcpConnection, TcpListener } from "../../../lib/os/network.ts";
import { type Backoff, socketBackoff } from "../../../lib/os/backoff.ts";
import type { Forwarding } from "../forwarding.ts";
import type { ServiceAddress } from "../listeners.ts";
import { isClientGone } from "../../../lib/os/socket_errors.ts";
import type { TcpForwarder } from "./tcp_forwarder.ts";

/** Number of silent connections to close when no files are left. */
const RELIEF = 16;

/** Accepts connections of a listening socket without waiting for their handling. */
export class TcpAcceptor {
  readonly #forwarding: Forwarding;
  readonly #listener: TcpListener;
  // Made when it is needed: most of 10,000 sockets never fail.
  #backOff: Backoff | undefined;
  #forwarder: Pick<TcpForwarder, "accept">;
  #at: ServiceAddress;
  #closed = false;

  constructor(
    forwarding: Forwarding,
    listener: TcpListener,
    forwarder: Pick<TcpForwarder, "accept">,
    at: ServiceAddress,
  ) {
    this.#forwarding = forwarding;
    this.#listener = listener;
    this.#forwarder = forwarder;
    this.#at = at;
  }

  start(): void {
    this.#forwarding.loops.add();
    this.#accept();
  }

  /** Gives the connections from now on to a forwarder. */
  assign(forwarder: TcpForwarder, at: ServiceAddress): void {
    this.#forwarder = forwarder;
    this.#at = at;
  }

  /** Closes the socket. Connections that were accepted stay. */
  close(): void {
    this.#closed = true;
    this.#listener.close();
    this.#backOff?.cancel();
  }

  async #accept(): Promise<void> {
    while (!this.#closed) {
      let connection: TcpConnection;
      try {
        connection = await this.#listener.accept();
      } catch (error) {
        if (this.#closed) break;
        if (isClientGone(error)) continue;
        // The connection stays in the kernel's queue: asking again at once would be a busy loop.
        const report = { error, relief: RELIEF, socket: this.#at.socket };
        this.#forwarding.room.reportError("Cannot accept a connection", report);
        this.#backOff ??= socketBackoff();
        await this.#backOff.pause(this.#forwarding.clock);
        continue;
      }
      this.#backOff = undefined;
      // Of a burst, the rest stays in the kernel's queue meanwhile.
      await this.#forwarding.accepts.take();
      // Its Service may be deleted: nothing would end the connection.
      if (this.#closed) {
        connection.close();
        break;
      }
      this.#forwarder.accept(connection, this.#at);
    }
    await this.#forwarding.accepts.ended();
    this.#forwarding.loops.remove();
  }
}
