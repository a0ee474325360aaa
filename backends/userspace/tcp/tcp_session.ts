import type { TcpConnection } from "../../../lib/os/network.ts";
import type { Engine, Relay, RelayUser } from "../engine.ts";
import type { RecencyItem } from "../expiry_queue.ts";
import type { Relayed } from "../forwarder.ts";
import type { HopCounter } from "../own_sockets.ts";
import type { ServiceTraffic } from "../../../lib/proxy/service_traffic.ts";

/** Whom a session belongs to. */
interface TcpSessionOwner {
  readonly engine: Engine;
  /** Counters of the Service, where they are wanted. */
  readonly traffic: ServiceTraffic | undefined;
  /** Data came, from either side. */
  touch(session: TcpSession): void;
  /** Both connections are closed. Called once. */
  onClosed(session: TcpSession): void;
}

/** The header with which a connection has to begin. */
export interface AwaitedHeader extends RecencyItem<AwaitedHeader> {
  readonly session: TcpSession;
  /** Why the session was closed. */
  reason: string | undefined;
}

/** The connection of a client and, once there is one, that to its endpoint. */
export class TcpSession implements Relayed<TcpSession>, HopCounter, RelayUser {
  older: TcpSession | undefined;
  newer: TcpSession | undefined;
  usedAt = 0;
  hops = 0;
  /** The client whose connections a limit counts; `undefined` = not counted. */
  counted: string | undefined;
  /** The endpoint no longer has it; `undefined` = nothing depends on its connections. */
  unload: (() => void) | undefined;
  lifetime: Relayed<TcpSession>["lifetime"];
  /** The PROXY protocol header that has not come; `undefined` = none is waited for. */
  header: AwaitedHeader | undefined;
  closed = false;
  readonly client: TcpConnection;
  readonly #owner: TcpSessionOwner;
  #endpoint: TcpConnection | undefined;
  #relay: Relay | undefined;

  constructor(owner: TcpSessionOwner, client: TcpConnection) {
    this.#owner = owner;
    this.client = client;
  }

  /**
   * Copies until the session is closed, after `first` was sent to the endpoint. Does not reject;
   * `endpoint` is closed with the session.
   */
  async relay(endpoint: TcpConnection, first?: Uint8Array): Promise<void> {
    // The session may have been closed while the endpoint was dialled.
    if (this.closed) return endpoint.close();
    this.#endpoint = endpoint;
    this.#relay = this.#owner.engine.relay(this.client, endpoint, this, first);
    await this.#relay.ended;
  }

  onData(isFromClient: boolean, bytes: number): void {
    this.#owner.touch(this);
    const { traffic } = this.#owner;
    if (traffic === undefined) return;
    if (isFromClient) traffic.bytesFromClients += bytes;
    else traffic.bytesToClients += bytes;
  }

  /** Closes both connections. The kernel still sends data that it has accepted. */
  close(): void {
    if (this.closed) return;
    this.closed = true;
    this.client.close();
    this.#endpoint?.close();
    this.#owner.onClosed(this);
  }

  /** Closes the session if one side is gone without a sign. */
  async closeIfGone(): Promise<void> {
    await this.#relay?.closeIfGone();
  }
}
