import type { IpAddress } from "../../../lib/net/ip_address.ts";
import type { TcpConnection } from "../../../lib/os/network.ts";
import type { EdgeSettings } from "../../../lib/proxy/edge_settings.ts";
import { type EndpointKey, endpointKey } from "../../../lib/proxy/endpoint.ts";
import type { ServicePlan } from "../../../lib/proxy/service_plan.ts";
import { serviceKey, type ServicePortKey } from "../../../lib/proxy/service_port_name.ts";
import { ConnectionLimits } from "../connection_limits.ts";
import type { Forwarding } from "../forwarding.ts";
import type { ServiceAddress } from "../listeners.ts";
import {
  type CarriedConnection,
  proxyHeaderV1,
  proxyHeaderV2,
} from "../proxy_protocol/proxy_header.ts";
import { SessionTimeouts } from "../session_timeouts.ts";
import { ProxyHeaderGate } from "./proxy_header_gate.ts";
import type { TcpSession } from "./tcp_session.ts";

/** A connection, and where it came in. */
export interface AcceptedConnection {
  readonly connection: TcpConnection;
  readonly at: ServiceAddress;
}

/** A connection whose client is known. */
export interface ClientConnection extends AcceptedConnection {
  /** The client's address and port: its own, or those that a PROXY protocol header carries. */
  readonly client: string;
  readonly clientPort: number;
  /** The header's addresses. */
  readonly carried?: CarriedConnection | undefined;
  /** Data that came with the header. */
  readonly rest?: Uint8Array;
}

/** A session's place in the order of last use is brought up to date once in so long, to save CPU. */
const ACTIVITY_GRAIN_MS = 1000;
/** The same as a part of the idle time-out, so that a busy session never seems idle. */
const GRAINS_PER_IDLE_TIME = 10;

/** The cure for connections without a header. */
const HEADER_CURE =
  "let the client send PROXY protocol, or take its address out of kube-relay.io/accept-proxy-protocol-from";

/** Applies the annotations of a Service to the TCP connections of one of its ports. */
export class TcpEdge {
  readonly #forwarding: Forwarding;
  readonly #key: ServicePortKey;
  readonly #limits: ConnectionLimits;
  #headers: ProxyHeaderGate | undefined;
  #timeouts: SessionTimeouts<TcpSession> | undefined;
  #sendProxy: EdgeSettings["sendProxy"];
  #sockets: ReadonlyMap<EndpointKey, string> | undefined;

  constructor(forwarding: Forwarding, { key, name }: Pick<ServicePlan, "key" | "name">) {
    this.#forwarding = forwarding;
    this.#key = key;
    this.#limits = new ConnectionLimits(forwarding.counts, serviceKey(name));
  }

  /**
   * Adopts other settings. Time-outs of open sessions begin again; limits count the connections that
   * were made since there are limits.
   */
  update(edge: EdgeSettings, sessions: Iterable<TcpSession>): void {
    const { clock, counters } = this.#forwarding;
    const now = clock.now();
    this.#sendProxy = edge.sendProxy;
    this.#sockets = edge.unixSockets &&
      new Map(
        edge.unixSockets.map(({ address, port, path }) => [endpointKey(address, port), path]),
      );
    if (edge.acceptProxyFrom) this.#headers ??= new ProxyHeaderGate(this.#forwarding);
    this.#headers?.update(edge);
    this.#limits.update(edge, sessions);
    this.#timeouts?.close();
    this.#timeouts = edge.idleMs === undefined && edge.lifetimeMs === undefined
      ? undefined
      : new SessionTimeouts<TcpSession>(clock, edge, (session) => {
        counters.tcpExpired++;
        session.close();
      });
    for (const session of sessions) this.#timeouts?.enter(session, now);
  }

  /** The ServicePort was removed: open sessions count for no limit of its Service any more. */
  leaveService(sessions: Iterable<TcpSession>): void {
    this.#limits.update({}, sessions);
  }

  /** Paths of Unix sockets that replace endpoints. */
  get sockets(): ReadonlyMap<EndpointKey, string> | undefined {
    return this.#sockets;
  }

  /** Sessions that count for no limit yet, because a PROXY protocol header has to name their client. */
  get waiting(): number {
    return this.#headers?.waiting ?? 0;
  }

  /** Whether the header of a session is late. */
  get hasLate(): boolean {
    return this.#headers?.hasLate === true;
  }

  /** Closes up to `count` sessions whose header is late, and returns their number. */
  closeLate(count: number): number {
    return this.#headers?.closeLate(count) ?? 0;
  }

  /** Whether a client has to send a PROXY protocol header. */
  trusts(client: string): boolean {
    return this.#headers?.trusts(client) === true;
  }

  /**
   * Reads the header of a trusted client. Returns the connection with the addresses that it carries;
   * `undefined` if there is none, which is counted unless the client sent nothing at all.
   */
  async readHeader(
    session: TcpSession,
    { connection, at }: AcceptedConnection,
  ): Promise<ClientConnection | undefined> {
    const header = await this.#headers?.read(session, connection);
    if (header?.kind === "invalid") this.#reportHeader(connection, header.reason);
    if (header?.kind !== "header" || session.closed) return undefined;
    const { carried, rest } = header;
    const { hostname, port } = connection.remoteAddr;
    const { address: client, port: clientPort } = carried?.source ?? { address: hostname, port };
    return { connection, at, client, clientPort, carried, rest };
  }

  /** Whether the limits admit a connection of a client; counts it if so. */
  admits(session: TcpSession, client: string): boolean {
    const { clock, counters, log } = this.#forwarding;
    const reached = this.#limits.admit(session, client, clock.now());
    if (reached === undefined) return true;
    counters.tcpLimited++;
    log.warn("Refused a connection: a limit of its Service is reached", {
      ...{ servicePort: this.#key, client, ...reached },
    });
    return false;
  }

  /** A session begins. */
  enter(session: TcpSession, now: number): void {
    this.#timeouts?.enter(session, now);
  }

  /** Data came. */
  touch(session: TcpSession, now: number): void {
    this.#timeouts?.touch(session, now);
  }

  /** A session has ended, or was not begun although it was admitted. */
  leave(session: TcpSession): void {
    this.#headers?.leave(session);
    this.#timeouts?.leave(session);
    this.#limits.leave(session);
  }

  /** What precedes the copied data: a header if the endpoint wants one, and data that came with one. */
  firstData(request: ClientConnection): Uint8Array | undefined {
    const { client, clientPort, at, rest } = request;
    if (this.#sendProxy === undefined) return rest;
    const carried = request.carried ?? {
      source: { address: client as IpAddress, port: clientPort },
      destination: { address: at.address, port: at.port },
    };
    const header = this.#sendProxy === "v1"
      ? proxyHeaderV1(carried)
      : proxyHeaderV2(carried, "TCP");
    return rest ? new Uint8Array([...header, ...rest]) : header;
  }

  #reportHeader(connection: TcpConnection, reason: string): void {
    const { counters, log } = this.#forwarding;
    counters.tcpRefused++;
    counters.proxyHeaderErrors++;
    log.warn("Closed a connection without a valid PROXY protocol header", {
      servicePort: this.#key,
      client: connection.remoteAddr.hostname,
      reason,
      cure: HEADER_CURE,
    });
  }
}

/** The longest time for which data of a session may go unnoticed. */
export function activityGrainMs({ idleMs = Infinity }: EdgeSettings = {}): number {
  return Math.min(ACTIVITY_GRAIN_MS, idleMs / GRAINS_PER_IDLE_TIME);
}
