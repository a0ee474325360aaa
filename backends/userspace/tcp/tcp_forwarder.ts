import type { IpAddress } from "../../../lib/net/ip_address.ts";
import type { LogFields } from "../../../lib/log/logger.ts";
import { formatHostPort, type Port } from "../../../lib/net/port.ts";
import type { TcpConnection } from "../../../lib/os/network.ts";
import type { EdgeSettings } from "../../../lib/proxy/edge_settings.ts";
import type { EndpointKey } from "../../../lib/proxy/endpoint.ts";
import type { AffinityEntry } from "../../../lib/proxy/packet_explanation.ts";
import type { ServicePlan } from "../../../lib/proxy/service_plan.ts";
import {
  type ServiceKey,
  serviceKey,
  type ServicePortKey,
} from "../../../lib/proxy/service_port_name.ts";
import type { ServiceTraffic } from "../../../lib/proxy/service_traffic.ts";
import type { EndpointAges } from "../balancing/endpoint_shares.ts";
import type { BufferPool } from "./buffer_pool.ts";
import { endpointListsOf } from "../endpoint_loops.ts";
import type { EndpointPicker, SharedServicePlan, VerdictName } from "../endpoint_picker.ts";
import type { FlowOutcome, Forwarding } from "../forwarding.ts";
import type { ServiceAddress } from "../listeners.ts";
import { CAME_BACK_CURE } from "../own_sockets.ts";
import { RecencyList } from "../recency_list.ts";
import { SHORTAGE_CURES } from "../../../lib/os/open_files.ts";
import type { DialFailure } from "./tcp_dialer.ts";
import {
  type AcceptedConnection,
  activityGrainMs,
  type ClientConnection,
  TcpEdge,
} from "./tcp_edge.ts";
import { TcpSession, type TcpSessionOwner } from "./tcp_session.ts";

/** More connections than this are rarely being made at one time. */
const MANY_DIALS = 16;

/** The description of a connection that was closed at once. */
const REFUSED = "closed at once: the sender is not let in, there is no endpoint for it, or the " +
  "bound of connections is reached";

/**
 * Forwards the TCP connections of one ServicePort to the endpoints of a plan. Open connections
 * continue when the plan changes, even if their endpoint was removed.
 */
export class TcpForwarder implements TcpSessionOwner {
  readonly smallBuffers: BufferPool;
  readonly largeBuffers: BufferPool;
  readonly #forwarding: Forwarding;
  readonly #picker: EndpointPicker;
  readonly #sessions = new RecencyList<TcpSession>();
  readonly service: ServiceKey;
  readonly use = "connection";
  #plan: ServicePlan;
  /** Applies the annotations of the Service, once there are any. */
  #edge: TcpEdge | undefined;
  /** A session's place in the order of last use is brought up to date once in so long. */
  #activityGrainMs: number;
  #traffic: ServiceTraffic | undefined;
  /** Endpoints whose last attempt failed, if the Service ejects such endpoints. */
  #failing: Set<EndpointKey> | undefined;

  constructor(forwarding: Forwarding, plan: SharedServicePlan) {
    this.#forwarding = forwarding;
    this.smallBuffers = forwarding.smallBuffers;
    this.largeBuffers = forwarding.largeBuffers;
    this.service = serviceKey(plan.name);
    this.#plan = plan;
    this.#picker = forwarding.createPicker(plan);
    this.#activityGrainMs = activityGrainMs(plan.edge);
    if (plan.edge) this.#applySettings(plan.edge);
  }

  get traffic(): ServiceTraffic | undefined {
    return this.#traffic;
  }

  get key(): ServicePortKey {
    return this.#plan.key;
  }

  /** Connections that are open now. */
  get size(): number {
    return this.#sessions.size;
  }

  /** Those whose client is known. */
  get connections(): number {
    return this.#sessions.size - (this.#edge?.waiting ?? 0);
  }

  /** Sends new connections by another plan. */
  update(plan: ServicePlan): void {
    const { edge } = this.#plan;
    this.#plan = plan;
    if (plan.edge !== edge) this.#applySettings(plan.edge);
    this.#picker.update(plan, this.#forwarding.clock.now());
    if (!this.#failing?.size) return;
    const known = new Set(endpointListsOf(plan).flat().map(({ key }) => key));
    for (const key of this.#failing) if (!known.has(key)) this.#failing.delete(key);
  }

  /** Another thread could not connect to an endpoint: the next success is reported. */
  expectFailing(endpoint: EndpointKey): void {
    this.#failing?.add(endpoint);
  }

  /** As {@linkcode EndpointPicker.skip}. Open connections stay. */
  skip(unhealthy: ReadonlySet<EndpointKey>): void {
    this.#picker.skip(unhealthy, this.#forwarding.clock.now());
  }

  /** As {@linkcode EndpointPicker.restoreAges}. */
  restoreAges(ages: EndpointAges): void {
    this.#picker.restoreAges(ages, this.#forwarding.clock.now());
  }

  /** As {@linkcode EndpointPicker.remembered}. */
  remembered(client: string): AffinityEntry | undefined {
    return this.#picker.remembered(client, this.#forwarding.clock.now());
  }

  /** Takes a connection that came in at an address of the ServicePort. */
  accept(connection: TcpConnection, at: ServiceAddress): void {
    const { hostname: client, port: clientPort } = connection.remoteAddr;
    const session = new TcpSession(this, connection);
    const request = { client, clientPort, connection, at };
    if (this.#edge?.trusts(client)) {
      if (!this.#enter(session)) return this.#refuse(session, request);
      this.#countAccepted(session);
      return void this.#serveTrusted(session, request);
    }
    const verdict = this.#forwarding.clients.verdictFor(this.#plan, at, client);
    const isAdmitted = verdict !== undefined && (this.#edge?.admits(session, client) ?? true);
    if (!isAdmitted || !this.#enter(session)) return this.#refuse(session, request);
    this.#countAccepted(session);
    void this.#serve(session, { ...request, verdict });
  }

  /**
   * Closes up to `count` connections that are late with a header, or else have been silent for long.
   * Returns their number.
   */
  closeSilent(count: number, silentMs = this.#forwarding.options.silentMs): number {
    const { clock, counters } = this.#forwarding;
    const before = clock.now() - silentMs;
    const late = this.#edge?.closeLate(count) ?? 0;
    let closed = late;
    for (const session of this.silentSince(before)) {
      if (closed === count) break;
      session.close();
      closed++;
    }
    counters.tcpSilentClosed += closed - late;
    return closed;
  }

  /** Whether {@linkcode closeSilent} would close one. */
  hasSilent(silentMs: number): boolean {
    const before = this.#forwarding.clock.now() - silentMs;
    return this.#edge?.hasLate === true || this.silentSince(before).next().done === false;
  }

  /** Connections without data since then, the longest silent first. */
  *silentSince(before: number): IterableIterator<TcpSession> {
    for (const session of this.#sessions) {
      if (session.usedAt > before) return;
      yield session;
    }
  }

  /** The ServicePort was removed. Connections may finish. */
  leaveService(): void {
    this.#edge?.leaveService(this.#sessions);
  }

  /** Closes every connection. */
  close(): void {
    for (const session of this.#sessions) session.close();
  }

  onActivity(session: TcpSession): void {
    const now = this.#forwarding.clock.now();
    if (now - session.usedAt < this.#activityGrainMs) return;
    this.#sessions.touch(session, now);
    this.#edge?.touch(session, now);
  }

  onClosed(session: TcpSession): void {
    this.#sessions.delete(session);
    this.#forwarding.room.give(this);
    this.#forwarding.sessions.remove();
    this.#forwarding.own.untake(session);
    this.#edge?.leave(session);
    session.unload?.();
    if (this.#traffic && session.isCountedOpen) this.#traffic.open--;
    if (this.#sessions.size === 0) this.#forwarding.room.leave(this);
  }

  #applySettings(edge: EdgeSettings = {}): void {
    this.#activityGrainMs = activityGrainMs(edge);
    this.#failing = edge.ejectAfter === undefined ? undefined : new Set();
    this.#edge ??= new TcpEdge(this.#forwarding, this.#plan);
    this.#edge.update(edge, this.#sessions);
  }

  /** Counts a session, unless a bound of the node forbids it or its client is this process. */
  #enter(session: TcpSession): boolean {
    const { clock, own, room } = this.#forwarding;
    const isOwn = own.take(session, session.client);
    if (isOwn) this.#reportOwn({ client: session.client.remoteAddr.hostname });
    if (isOwn || !room.take(this)) {
      own.untake(session);
      return false;
    }
    this.#sessions.add(session, clock.now());
    this.#edge?.enter(session, clock.now());
    this.#forwarding.sessions.add();
    if (this.#sessions.size === 1) room.enter(this);
    this.#forwarding.loops.add();
    return true;
  }

  /** Refuses a connection that was not counted. */
  #refuse(session: TcpSession, request: ClientConnection): void {
    this.#edge?.leave(session);
    this.#forwarding.counters.tcpRefused++;
    this.#report(request, { detail: REFUSED });
    request.connection.close();
  }

  /** Serves a connection that begins with a PROXY protocol header, for the client that it names. */
  async #serveTrusted(session: TcpSession, accepted: AcceptedConnection): Promise<void> {
    const { clients, counters, loops } = this.#forwarding;
    const request = await this.#edge?.readHeader(session, accepted);
    if (request === undefined) {
      session.close();
      return loops.remove();
    }
    const verdict = clients.verdictFor(this.#plan, request.at, request.client);
    if (verdict !== undefined && this.#edge?.admits(session, request.client) === true) {
      return await this.#serve(session, { ...request, verdict });
    }
    counters.tcpRefused++;
    this.#report(request, { detail: REFUSED });
    session.close();
    loops.remove();
  }

  /** A Service has its counters from its first connection on: those without traffic take no place. */
  #countAccepted(session: TcpSession): void {
    this.#forwarding.counters.tcpAccepted++;
    const traffic = this.#traffic ??= this.#forwarding.traffic?.enter(this.#plan.name);
    session.isCountedOpen = true;
    if (!traffic) return;
    traffic.opened++;
    traffic.open++;
  }

  async #serve(
    session: TcpSession,
    request: ClientConnection & { readonly verdict: VerdictName },
  ): Promise<void> {
    const { dialer, loops } = this.#forwarding;
    if (this.#mayBeOwn(request)) await this.#forwarding.clock.sleep(0);
    if (session.closed) return loops.remove();
    const sockets = this.#edge?.sockets;
    const observe = this.#failing &&
      ((endpoint: EndpointKey, failure?: string) => this.#observe(endpoint, failure));
    const result = await dialer.dial(this.#picker, { ...request, sockets, observe });
    if (result.kind !== "connected") {
      this.#report(request, { detail: failureText(result) });
      // Otherwise this process closed the connection: not the endpoint's fault, and counted
      // elsewhere.
      if (!session.closed) this.#giveUp(session, result);
    } else {
      const { connection, load } = result;
      const endpoint = endpointOf(connection);
      this.#report(request, { endpoint, seenAs: connection.localAddr.hostname as IpAddress });
      if (session.closed) load?.remove(endpoint);
      else if (load) session.unload = () => load.remove(endpoint);
      await this.#relay(session, { endpoint: connection, request });
    }
    loops.remove();
  }

  async #relay(
    session: TcpSession,
    { endpoint, request }: { readonly endpoint: TcpConnection; readonly request: ClientConnection },
  ): Promise<void> {
    const { client, at, rest } = request;
    const { own, policies } = this.#forwarding;
    if (own.dial(session, endpoint)) {
      this.#reportOwn({ endpoint: endpointOf(endpoint) });
      session.close();
    }
    const { hostname, port } = endpoint.remoteAddr;
    const leave = policies?.enter({
      ...{ protocol: "TCP", client, at },
      endpoint: { address: hostname as IpAddress, port: port as Port },
    }, () => session.close());
    if (rest && this.#traffic) this.#traffic.bytesFromClients += rest.length;
    await session.relay(endpoint, this.#edge?.firstData(request));
    leave?.();
    own.hangUp(endpoint);
  }

  /** Reports each failure, and the first success after one. */
  #observe(endpoint: EndpointKey, failure: string | undefined): void {
    if (failure !== undefined) this.#failing?.add(endpoint);
    else if (!this.#failing?.delete(endpoint)) return;
    this.#forwarding.outcomes?.observe({
      ...{ servicePort: this.#plan.key, endpoint },
      ...(failure !== undefined && { failure }),
    });
  }

  /**
   * Deno accepts connections before it reports established ones. In a loop each accepted connection
   * makes another one, so that none would be recognized in time.
   */
  #mayBeOwn({ connection: { remoteAddr }, at }: AcceptedConnection): boolean {
    const { clients, dialer } = this.#forwarding;
    return dialer.pending >= MANY_DIALS && clients.isNode(remoteAddr.hostname as IpAddress, at);
  }

  #reportOwn(seen: LogFields): void {
    this.#forwarding.log.warn("A connection to an endpoint came back to kube-relay and is closed", {
      servicePort: this.#plan.key,
      ...seen,
      cure: CAME_BACK_CURE,
    });
  }

  #report({ client, clientPort, at }: ClientConnection, outcome: FlowOutcome): void {
    const service = this.#plan.key;
    this.#forwarding.report({ protocol: "TCP", service, client, clientPort, at }, outcome);
  }

  #giveUp(session: TcpSession, result: DialFailure): void {
    const { counters, log } = this.#forwarding;
    session.close();
    counters.tcpRefused++;
    const servicePort = this.#plan.key;
    if (result.kind === "denied") return;
    if (result.kind === "out-of-sockets" || result.kind === "out-of-ports") {
      const cure = SHORTAGE_CURES[result.kind === "out-of-ports" ? "ports" : "files"];
      log.warn("Cannot open a socket to an endpoint", { servicePort, cure });
    } else {
      log.warn("Cannot connect to any endpoint", { servicePort, attempts: result.attempts });
    }
  }
}

function endpointOf({ remoteAddr: { hostname, port } }: TcpConnection): EndpointKey {
  return formatHostPort(hostname, port) as EndpointKey;
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
