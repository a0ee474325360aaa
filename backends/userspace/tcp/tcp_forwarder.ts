import type { IpAddress } from "../../../lib/net/ip_address.ts";
import type { LogFields } from "../../../lib/log/logger.ts";
import type { EdgeSettings } from "../../../lib/proxy/edge_settings.ts";
import { type EndpointKey, endpointKey } from "../../../lib/proxy/endpoint.ts";
import type { ServicePlan } from "../../../lib/proxy/service_plan.ts";
import { endpointListsOf } from "../endpoint_loops.ts";
import type { SharedServicePlan, VerdictName } from "../endpoint_picker.ts";
import type { EngineConnection, Relay, RelayUser } from "../engine.ts";
import { type Counted, Forwarder, type Relayed } from "../forwarder.ts";
import type { Forwarding } from "../forwarding.ts";
import type { ServiceAddress } from "../listeners.ts";
import { CAME_BACK_CURE, type HopCounter } from "../own_sockets.ts";
import { proxyHeaderV1, proxyHeaderV2 } from "../proxy_protocol/proxy_header.ts";
import { SHORTAGE_CURES } from "../../../lib/os/open_files.ts";
import type { AwaitedStart } from "./awaited_starts.ts";
import {
  type AcceptedConnection,
  type ClientConnection,
  type ConnectionStart,
  ProxyHeaderGate,
} from "./proxy_header_gate.ts";
import type { DialFailure, DialledConnection } from "./tcp_dialer.ts";

/** More connections than this are rarely being made at one time. */
const MANY_DIALS = 16;
/** Turns of the event loop in which connections that are being made are reported, unless they hang. */
const REPORT_TURNS = 20;
/** For so long after a connection came back, each one of this node may be the next of a loop. */
const LOOP_MS = 10_000;
/** A connection to an endpoint may be accepted here so long after it was closed. */
const LATE_ACCEPT_MS = 1000;

/** The description of a connection that was closed at once. */
const REFUSED = "closed at once: the sender is not let in, there is no endpoint for it, or the " +
  "bound of connections is reached";

/** The connection of a client and, once there is one, that to its endpoint. */
class TcpSession implements Relayed<TcpSession>, HopCounter, RelayUser {
  older: TcpSession | undefined;
  newer: TcpSession | undefined;
  usedAt = 0;
  hops = 0;
  counted: Counted["counted"];
  lifetime: Relayed<TcpSession>["lifetime"];
  /** The endpoint no longer has it; `undefined` = nothing depends on its connections. */
  unload: (() => void) | undefined;
  header: AwaitedStart | undefined;
  closed = false;
  readonly client: EngineConnection;
  readonly #forwarder: TcpForwarder;
  #endpoint: EngineConnection | undefined;
  #relay: Relay | undefined;
  #onEnded: (() => void) | undefined;

  constructor(forwarder: TcpForwarder, client: EngineConnection) {
    this.#forwarder = forwarder;
    this.client = client;
  }

  /**
   * Copies until the session is closed, after `first` was sent to the endpoint, and then calls `onEnded`.
   * `endpoint` is closed with the session.
   */
  relay(endpoint: EngineConnection, first: Uint8Array | undefined, onEnded: () => void): void {
    // The session may have been closed while the endpoint was dialled.
    if (this.closed) {
      endpoint.close();
      return onEnded();
    }
    this.#endpoint = endpoint;
    this.#onEnded = onEnded;
    this.#relay = this.#forwarder.forwarding.engine.relay(this.client, endpoint, this, first);
  }

  onEnded(): void {
    this.#onEnded?.();
  }

  onData(isFromClient: boolean, bytes: number): void {
    this.#forwarder.touch(this);
    const { traffic } = this.#forwarder;
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
    this.#forwarder.onClosed(this);
  }

  /** Closes the session if one side is gone without a sign. */
  async closeIfGone(): Promise<void> {
    await this.#relay?.closeIfGone();
  }
}

/**
 * Forwards the TCP connections of one ServicePort to the endpoints of a plan. Open connections
 * continue when the plan changes, even if their endpoint was removed.
 */
export class TcpForwarder extends Forwarder<TcpSession> {
  readonly use = "connection";
  #headers: ProxyHeaderGate | undefined;
  /** Paths of Unix sockets that replace endpoints. */
  #sockets: ReadonlyMap<EndpointKey, string> | undefined;
  /** Endpoints whose last attempt failed, if the Service ejects such endpoints. */
  #failing: Set<EndpointKey> | undefined;
  /** Sessions whose endpoint is being dialled, the first one first, with the number of each dial. */
  readonly #dialling = new Map<TcpSession, number>();
  #dials = 0;
  /** When a connection to an endpoint came back last. */
  #cameBackAt = -Infinity;

  constructor(forwarding: Forwarding, plan: SharedServicePlan) {
    super(forwarding, plan, Infinity);
    if (plan.edge) this.applySettings(plan.edge);
  }

  override get connections(): number {
    return this.size - (this.#headers?.waiting ?? 0);
  }

  /** Sends new connections by another plan. */
  override update(plan: ServicePlan): void {
    super.update(plan);
    if (!this.#failing?.size) return;
    const known = new Set(endpointListsOf(plan).flat().map(({ key }) => key));
    for (const key of this.#failing) if (!known.has(key)) this.#failing.delete(key);
  }

  /** Another thread could not connect to an endpoint: the next success is reported. */
  expectFailing(endpoint: EndpointKey): void {
    this.#failing?.add(endpoint);
  }

  /** Whether connections of a client have to begin with a PROXY protocol header. */
  trusts(client: string): boolean {
    return this.#headers?.trusts(client) ?? false;
  }

  /**
   * Takes a connection that came in at an address of the ServicePort. `start`: what was read of it to find
   * the ServicePort.
   */
  accept(connection: EngineConnection, at: ServiceAddress, start?: ConnectionStart): void {
    const { hostname: client, port: clientPort } = connection.remoteAddr;
    const session = new TcpSession(this, connection);
    let request: ClientConnection = { client, clientPort, connection, at };
    if (this.#headers?.trusts(client)) {
      if (start === undefined) {
        if (!this.#begin(session)) return this.#refuse(session, request);
        return void this.#serveTrusted(session, request);
      }
      const named = this.#headers.take(request, start);
      if (named === undefined) return connection.close();
      request = named;
    } else if (start) request = { ...request, rest: start.received };
    const verdict = this.forwarding.clients.verdictFor(this.plan, at, request.client);
    const isAdmitted = verdict !== undefined && this.admits(session, request.client);
    if (!isAdmitted || !this.#begin(session)) return this.#refuse(session, request);
    this.#serve(session, request, verdict);
  }

  /** Connections that are late with a header go first. */
  override closeSilent(count: number, silentMs?: number): number {
    const late = this.#headers?.closeLate(count) ?? 0;
    const closed = super.closeSilent(count - late, silentMs);
    this.forwarding.counters.tcpSilentClosed += closed;
    return late + closed;
  }

  override hasSilent(silentMs: number): boolean {
    return this.#headers?.hasLate === true || super.hasSilent(silentMs);
  }

  /** Connections that may be gone without a sign. */
  silentConnections(before: number): Iterable<TcpSession> {
    return this.silentSince(before);
  }

  /** Both connections are closed. Called once. */
  onClosed(session: TcpSession): void {
    this.leave(session);
    this.#headers?.leave(session);
    this.forwarding.sessions.remove();
    this.forwarding.own.untake(session);
    session.unload?.();
  }

  protected override end(session: TcpSession): void {
    session.close();
  }

  protected override expire(session: TcpSession): void {
    this.forwarding.counters.tcpExpired++;
    session.close();
  }

  /** Idle times begin again, too. */
  protected override applySettings(edge: EdgeSettings): void {
    this.#failing = edge.ejectAfter === undefined ? undefined : this.#failing ?? new Set();
    this.#sockets = edge.unixSockets &&
      new Map(
        edge.unixSockets.map(({ address, port, path }) => [endpointKey(address, port), path]),
      );
    if (edge.acceptProxyFrom) this.#headers ??= new ProxyHeaderGate(this.forwarding, this.key);
    this.#headers?.update(edge);
    for (const session of [...this.items]) this.items.touch(session, this.now);
    super.applySettings(edge);
  }

  /** Counts a session, unless a bound of the node forbids it or its client is this process. */
  #begin(session: TcpSession): boolean {
    const { counters, loops, own, room, sessions } = this.forwarding;
    const isOwn = own.take(session, session.client);
    if (isOwn) this.#reportOwn({ client: session.client.remoteAddr.hostname });
    if (isOwn || !room.take(this)) {
      own.untake(session);
      return false;
    }
    this.enter(session);
    sessions.add();
    loops.add();
    counters.tcpAccepted++;
    return true;
  }

  /** Refuses a connection that was not counted. */
  #refuse(session: TcpSession, request: ClientConnection): void {
    this.revoke(session);
    this.forwarding.counters.tcpRefused++;
    this.report(request, { detail: REFUSED });
    request.connection.close();
  }

  /** Serves a connection that begins with a PROXY protocol header, for the client that it names. */
  async #serveTrusted(session: TcpSession, accepted: AcceptedConnection): Promise<void> {
    const { clients, counters, loops } = this.forwarding;
    const request = await this.#headers?.read(session, accepted);
    if (request === undefined) {
      session.close();
      return loops.remove();
    }
    const verdict = clients.verdictFor(this.plan, request.at, request.client);
    if (verdict !== undefined && this.admits(session, request.client)) {
      return this.#serve(session, request, verdict);
    }
    counters.tcpRefused++;
    this.report(request, { detail: REFUSED });
    session.close();
    loops.remove();
  }

  #serve(session: TcpSession, request: ClientConnection, verdict: VerdictName): void {
    if (!this.#mayBeOwn(request)) return this.#dial(session, request, verdict);
    void this.#reportOfDials(session).then(() => this.#dial(session, request, verdict));
  }

  #dial(session: TcpSession, request: ClientConnection, verdict: VerdictName): void {
    const { dialer, loops } = this.forwarding;
    if (session.closed) return loops.remove();
    const { client, at } = request;
    const sockets = this.#sockets;
    const observe = this.#failing &&
      ((endpoint: EndpointKey, failure?: string) => this.#observe(endpoint, failure));
    this.#dialling.set(session, this.#dials++);
    dialer.dial(this.picker, { verdict, client, at, sockets, observe }, (result) => {
      this.#dialling.delete(session);
      if (result.kind === "connected") return this.#relay(session, result, request);
      this.report(request, { detail: failureText(result) });
      // Otherwise this process closed the connection: not the endpoint's fault, and counted
      // elsewhere.
      if (!session.closed) this.#giveUp(session, result);
      loops.remove();
    });
  }

  #relay(
    session: TcpSession,
    { connection: endpoint, endpoint: { key, address, port }, load }: DialledConnection,
    request: ClientConnection,
  ): void {
    const { client, at, rest } = request;
    const { clock, closing, loops, own, policies } = this.forwarding;
    this.report(request, {
      endpoint: key,
      seenAs: endpoint.localAddr.hostname as IpAddress,
    });
    if (session.closed) load?.remove(key);
    else if (load) session.unload = () => load.remove(key);
    if (own.dial(session, endpoint)) {
      this.#reportOwn({ endpoint: key });
      session.close();
    }
    const isEnded = session.closed;
    const leave = policies?.enter(
      { protocol: "TCP", client, at, endpoint: { address, port } },
      () => session.close(),
    );
    if (rest && this.traffic) this.traffic.bytesFromClients += rest.length;
    const hangUp = () => {
      own.hangUp(endpoint);
      loops.remove();
    };
    session.relay(endpoint, firstData(request, this.plan.edge), () => {
      leave?.();
      // Its other end may wait to be accepted here: it must be recognized then.
      if (isEnded) void clock.sleep(LATE_ACCEPT_MS, closing).catch(() => {}).then(hangUp);
      else hangUp();
    });
  }

  /** Reports each failure, and the first success after one. */
  #observe(endpoint: EndpointKey, failure: string | undefined): void {
    if (failure !== undefined) this.#failing?.add(endpoint);
    else if (!this.#failing?.delete(endpoint)) return;
    this.forwarding.onOutcome?.({
      ...{ servicePort: this.plan.key, endpoint },
      ...(failure !== undefined && { failure }),
    });
  }

  /**
   * Deno accepts connections before it reports established ones. In a loop each accepted connection
   * makes another one, so that none would be recognized in time.
   */
  #mayBeOwn({ connection: { remoteAddr }, at }: AcceptedConnection): boolean {
    const { clients, dialer } = this.forwarding;
    return (this.#mayLoop || dialer.pending >= MANY_DIALS) &&
      clients.isNode(remoteAddr.hostname as IpAddress, at);
  }

  /**
   * Waits for the connections that are being made: one of them may be that of the session. Once one
   * came back, it waits until they are reported. Before, one turn has to do: many clients of the node
   * would wait for each other.
   */
  async #reportOfDials(session: TcpSession): Promise<void> {
    const { clock, isShared, own } = this.forwarding;
    const dials = this.#dials;
    for (let turn = 0; turn < REPORT_TURNS && !session.closed; turn++) {
      await clock.sleep(0);
      const [oldest = dials] = this.#dialling.values();
      // Those of other threads are not seen.
      if (!this.#mayLoop || oldest >= dials && !isShared) break;
    }
    // Another thread that dialled it cannot close it.
    if (session.closed || !own.take(session, session.client)) return;
    this.#reportOwn({ client: session.client.remoteAddr.hostname });
    session.close();
  }

  get #mayLoop(): boolean {
    return this.now - this.#cameBackAt < LOOP_MS;
  }

  #reportOwn(seen: LogFields): void {
    this.#cameBackAt = this.now;
    this.forwarding.log.warn("A connection to an endpoint came back to kube-relay and is closed", {
      servicePort: this.plan.key,
      ...seen,
      cure: CAME_BACK_CURE,
    });
  }

  #giveUp(session: TcpSession, result: DialFailure): void {
    const { counters, log } = this.forwarding;
    session.close();
    counters.tcpRefused++;
    const servicePort = this.plan.key;
    if (result.kind === "denied") return;
    if (result.kind === "out-of-sockets" || result.kind === "out-of-ports") {
      const cure = SHORTAGE_CURES[result.kind === "out-of-ports" ? "ports" : "files"];
      log.warn("Cannot open a socket to an endpoint", { servicePort, cure });
    } else {
      log.warn("Cannot connect to any endpoint", { servicePort, attempts: result.attempts });
    }
  }
}

/** What precedes the copied data: a header if the endpoint wants one, and data that came with one. */
function firstData(
  { client, clientPort, at, rest, ...request }: ClientConnection,
  { sendProxy }: EdgeSettings = {},
): Uint8Array | undefined {
  if (sendProxy === undefined) return rest;
  const carried = request.carried ?? {
    source: { address: client as IpAddress, port: clientPort },
    destination: { address: at.address, port: at.port },
  };
  const header = sendProxy === "v1" ? proxyHeaderV1(carried) : proxyHeaderV2(carried, "TCP");
  return rest ? new Uint8Array([...header, ...rest]) : header;
}

function failureText({ kind, attempts }: DialFailure): string {
  switch (kind) {
    case "no-endpoint":
      return "closed: there is no endpoint for this sender";
    case "denied":
      return `closed: NetworkPolicies deny it: ${attempts.join(", ")}`;
    default:
      return `closed: no endpoint could be reached: ${attempts.join(", ")}`;
  }
}
