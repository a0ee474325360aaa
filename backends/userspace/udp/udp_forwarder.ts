import { CidrCover } from "../../../lib/net/cidr_cover.ts";
import { type IpAddress, tryParseIpAddress } from "../../../lib/net/ip_address.ts";
import type { SocketAddress } from "../../../lib/os/network.ts";
import { isOutOfPorts, systemErrorOf } from "../../../lib/os/socket_errors.ts";
import type { EdgeSettings } from "../../../lib/proxy/edge_settings.ts";
import type { Endpoint, EndpointKey } from "../../../lib/proxy/endpoint.ts";
import type { ServicePlan } from "../../../lib/proxy/service_plan.ts";
import type { EndpointLoad } from "../balancers.ts";
import type { SharedServicePlan } from "../endpoint_picker.ts";
import type {
  DatagramReceiver,
  DatagramSender,
  DatagramSocket,
  FlowReceiver,
  FlowSocket,
} from "../engine.ts";
import { type Counted, Forwarder, type Relayed } from "../forwarder.ts";
import type { FlowOutcome, Forwarding } from "../forwarding.ts";
import type { ServiceAddress } from "../listeners.ts";
import { CAME_BACK_CURE } from "../own_sockets.ts";
import type { LeaveGate, RelayedConnection } from "../policy_gate.ts";
import {
  type CarriedConnection,
  parseProxyDatagram,
  proxyHeaderV2,
} from "../proxy_protocol/proxy_header.ts";

/** The client of a datagram. */
interface DatagramOrigin {
  /** The peer of the socket, which gets the replies: the client, or a trusted proxy. */
  readonly sender: DatagramSender;
  /** The client: the sender, or the one that a PROXY protocol header names. */
  readonly client: SocketAddress;
  /** The header's addresses. */
  readonly carried?: CarriedConnection | undefined;
}

/** The cure for datagrams without a header. */
const HEADER_CURE =
  "let the sender use PROXY protocol v2, or take its address out of kube-relay.io/accept-proxy-protocol-udp-from";

/** Number of silent TCP connections to close when no files are left. */
const RELIEF = 4;

/**
 * One in this many datagrams is dropped instead of ending an unanswered flow. A datagram that circles
 * between nodes opens such a flow at each turn, and a single drop ends the circle.
 */
const UNANSWERED_PER_DROP = 8;

/** The description of a datagram without a flow. */
const REFUSED = "not forwarded: the sender is not let in, or there is no endpoint for it";

/** One listening socket and the flows of its clients. */
export class UdpPort implements DatagramReceiver {
  readonly #forwarding: Forwarding;
  readonly #socket: DatagramSocket;
  // Made with the first flow, like everything that 10,000 idle sockets can do without.
  #flows: Map<string, UdpFlow> | undefined;
  #forwarder: UdpForwarder;
  #at: ServiceAddress;
  #closed = false;

  constructor(
    forwarding: Forwarding,
    socket: DatagramSocket,
    forwarder: UdpForwarder,
    at: ServiceAddress,
  ) {
    this.#forwarding = forwarding;
    this.#socket = socket;
    this.#forwarder = forwarder;
    this.#at = at;
  }

  /** The address of the Service. */
  get at(): ServiceAddress {
    return this.#at;
  }

  start(): void {
    const { loops } = this.#forwarding;
    loops.add();
    void this.#socket.serve(this).then(() => loops.remove());
  }

  /** Gives the socket to a forwarder. Flows of another one end. */
  assign(forwarder: UdpForwarder, at: ServiceAddress): void {
    if (forwarder !== this.#forwarder) this.#endFlows();
    this.#forwarder = forwarder;
    this.#at = at;
    for (const flow of this.#flows?.values() ?? []) forwarder.check(flow);
  }

  /** Closes the socket, and its flows with it: their replies could not be sent from it. */
  close(): void {
    this.#closed = true;
    this.#endFlows();
    this.#socket.close();
  }

  /** A datagram of the endpoint is to go to the sender, from the address of the Service. */
  reply(flow: UdpFlow, datagram: Uint8Array): Promise<unknown> | void {
    this.#forwarder.touch(flow);
    return this.#socket.send(datagram, flow.origin.sender);
  }

  /** A flow has ended: the client's next datagram begins another one. */
  forget(flow: UdpFlow): void {
    const { sender, carried } = flow.origin;
    this.#flows?.delete(originKey(sender, carried));
  }

  take(datagram: Uint8Array, sender: DatagramSender): Promise<unknown> | void {
    const forwarder = this.#forwarder;
    const header = forwarder.readHeader(datagram, sender);
    if (header?.kind === "invalid") return this.onLost();
    const payload = header ? datagram.subarray(header.length) : datagram;
    const carried = header?.carried;
    const key = originKey(sender, carried);
    const known = this.#flows?.get(key);
    if (known) return this.#forward(known, payload);
    const { address: hostname, port } = carried?.source ?? {};
    const client = hostname === undefined ? sender : { hostname, port: port! };
    const opened = forwarder.open(this, { sender, client, carried });
    if (!(opened instanceof Promise)) return this.#begin(opened, key, payload);
    const kept = payload.slice();
    return opened.then((flow) => {
      if (!this.#closed && this.#forwarder === forwarder) return this.#begin(flow, key, kept);
      if (flow) forwarder.end(flow);
      this.onLost();
    });
  }

  onLost(): void {
    this.#forwarding.counters.udpDropped++;
  }

  onError(error: unknown): void {
    this.#forwarding.log.warn("Cannot receive a datagram", {
      ...{ socket: this.#at.socket, error: systemErrorOf(error) ?? error },
    });
  }

  #endFlows(): void {
    for (const flow of this.#flows?.values() ?? []) this.#forwarder.end(flow);
  }

  #begin(flow: UdpFlow | undefined, key: string, datagram: Uint8Array): Promise<unknown> | void {
    if (flow === undefined) return this.onLost();
    (this.#flows ??= new Map()).set(key, flow);
    return this.#forward(flow, datagram);
  }

  #forward(flow: UdpFlow, datagram: Uint8Array): Promise<unknown> | void {
    this.#forwarder.touch(flow);
    return flow.send(datagram);
  }
}

/** A proxy may send the datagrams of all its clients from one port. */
function originKey(sender: DatagramSender, carried: CarriedConnection | undefined): string {
  const key = sender.key ??= `${sender.hostname} ${sender.port}`;
  if (carried === undefined) return key;
  const { source, destination } = carried;
  const ends = [source.address, source.port, destination.address, destination.port];
  return `${key} ${ends.join(" ")}`;
}

/** The datagrams of one client, with a separate socket so that replies can be assigned. */
class UdpFlow implements Relayed<UdpFlow>, FlowReceiver {
  older: UdpFlow | undefined;
  newer: UdpFlow | undefined;
  usedAt = 0;
  lifetime: Relayed<UdpFlow>["lifetime"];
  counted: Counted["counted"];
  /** Whether an endpoint has answered. */
  isAnswered = false;
  isClosed = false;
  /** Takes the flow out of the policies' view. */
  leaveGate: LeaveGate | undefined;
  /** Precedes each datagram to the endpoint. */
  header: Uint8Array | undefined;
  /** Counts the flow for its endpoint, where the choice depends on it. */
  load: EndpointLoad | undefined;
  readonly port: UdpPort;
  readonly origin: DatagramOrigin;
  readonly #forwarder: UdpForwarder;
  readonly #socket: FlowSocket;
  #endpoint: Endpoint;

  constructor(
    forwarder: UdpForwarder,
    port: UdpPort,
    origin: DatagramOrigin,
    socket: FlowSocket,
    endpoint: Endpoint,
  ) {
    this.#forwarder = forwarder;
    this.port = port;
    this.origin = origin;
    this.#socket = socket;
    this.#endpoint = endpoint;
  }

  /** The port of the flow's own socket. */
  get ownPort(): number {
    return this.#socket.port;
  }

  get endpoint(): Endpoint {
    return this.#endpoint;
  }

  start(): void {
    const { loops } = this.#forwarder.forwarding;
    loops.add();
    void this.#socket.serve(this).then(() => loops.remove());
  }

  /** Sends a datagram of the client to the endpoint. */
  send(datagram: Uint8Array): Promise<unknown> | void {
    const { traffic } = this.#forwarder;
    if (traffic) traffic.bytesFromClients += datagram.length;
    if (this.header === undefined) return this.#socket.send(datagram);
    const bytes = new Uint8Array(this.header.length + datagram.length);
    bytes.set(this.header);
    bytes.set(datagram, this.header.length);
    return this.#socket.send(bytes);
  }

  /** Switches to another endpoint. */
  move(endpoint: Endpoint, load: EndpointLoad | undefined): void {
    this.load?.remove(this.#endpoint.key);
    this.load = load;
    this.#endpoint = endpoint;
    this.#socket.move({ hostname: endpoint.address, port: endpoint.port });
  }

  close(): void {
    this.isClosed = true;
    this.load?.remove(this.#endpoint.key);
    this.#socket.close();
  }

  /** Passes a datagram on to the client. */
  take(datagram: Uint8Array): Promise<unknown> | void {
    const { traffic } = this.#forwarder;
    this.isAnswered = true;
    if (traffic) traffic.bytesToClients += datagram.length;
    return this.port.reply(this, datagram);
  }

  onLost(): void {
    this.port.onLost();
  }

  onForeign(): void {
    this.#forwarder.forwarding.counters.udpForeignDropped++;
  }
}

/** Forwards the datagrams of each client to one of the endpoints of a plan. */
export class UdpForwarder extends Forwarder<UdpFlow> {
  readonly use = "flow";
  /** Senders that put a header before each datagram. */
  #trusted: CidrCover | undefined;
  /** Unanswered flows that were to be ended for new ones. */
  #unanswered = 0;
  #closed = false;

  constructor(forwarding: Forwarding, plan: SharedServicePlan) {
    super(forwarding, plan, forwarding.options.udpTimeoutMs);
    if (plan.edge) this.applySettings(plan.edge);
  }

  /** Adopts another plan; flows whose endpoint was removed move, or end if there is no other. */
  override update(plan: ServicePlan): void {
    super.update(plan);
    for (const flow of this.items) this.check(flow);
  }

  /**
   * As {@linkcode EndpointPicker.skip}. Flows of endpoints that are skipped move, as nothing else would
   * end them while their client sends.
   */
  override skip(unhealthy: ReadonlySet<EndpointKey>): void {
    super.skip(unhealthy);
    for (const flow of this.items) this.check(flow);
  }

  /**
   * The header that a trusted sender has to put before each datagram; `undefined` for other senders,
   * whose datagrams are never read. An invalid one is counted.
   */
  readHeader(
    datagram: Uint8Array,
    { hostname }: SocketAddress,
  ): ReturnType<typeof parseProxyDatagram> | undefined {
    const sender = this.#trusted && tryParseIpAddress(hostname);
    if (sender === undefined || !this.#trusted?.contains(sender)) return undefined;
    const header = parseProxyDatagram(datagram);
    if (header.kind === "invalid") {
      const { counters, log } = this.forwarding;
      counters.proxyHeaderErrors++;
      log.warn("Dropped a datagram without a valid PROXY protocol header", {
        servicePort: this.plan.key,
        client: hostname,
        reason: header.reason,
        cure: HEADER_CURE,
      });
    }
    return header;
  }

  /** A new flow for a client's first datagram; `undefined` when the client is not to be forwarded. */
  open(port: UdpPort, origin: DatagramOrigin): UdpFlow | undefined | Promise<UdpFlow | undefined> {
    if (this.#takesNone || this.#isOwn(port, origin.sender)) return undefined;
    const { hostname } = origin.client;
    const verdict = this.forwarding.clients.verdictFor(this.plan, port.at, hostname);
    const admission: Counted = { counted: undefined };
    if (verdict !== undefined && this.admits(admission, hostname)) {
      return this.#openAdmitted(port, origin, admission);
    }
    this.#report(port, origin, { detail: REFUSED });
    return undefined;
  }

  get #takesNone(): boolean {
    return this.forwarding.draining || this.#closed;
  }

  /** Opens a flow that the limits count, or takes it back from them. */
  #openAdmitted(
    port: UdpPort,
    origin: DatagramOrigin,
    admission: Counted,
    isRetry = false,
  ): UdpFlow | undefined | Promise<UdpFlow | undefined> {
    const flow = this.#takesNone ? undefined : this.#openTo(port, origin, admission);
    const mayRetry = flow === "out-of-ports" && !isRetry && !this.mayCircle();
    if (mayRetry && this.forwarding.room.closeForPort(this)) {
      // The port is free when the receive that waits on it has been taken back.
      return this.forwarding.clock.sleep(0)
        .then(() => this.#openAdmitted(port, origin, admission, true));
    }
    if (flow instanceof UdpFlow) return flow;
    this.revoke(admission);
    return undefined;
  }

  #openTo(
    port: UdpPort,
    origin: DatagramOrigin,
    admission: Counted,
  ): UdpFlow | "out-of-ports" | undefined {
    const { clients, counters, flows, own, policies, room } = this.forwarding;
    const { hostname: client } = origin.client;
    const verdict = clients.verdictFor(this.plan, port.at, client);
    if (verdict === undefined) return undefined;
    const endpoint = this.picker.pick({ verdict, client, now: this.now });
    const { load } = this.picker;
    const denial = endpoint && policies?.denialOf(relayedBy({ port, origin, endpoint }));
    this.#report(
      port,
      origin,
      endpoint === undefined
        ? { detail: REFUSED }
        : denial === undefined
        ? { endpoint: endpoint.key }
        : { detail: `not forwarded: NetworkPolicies deny it: ${endpoint.key} (${denial})` },
    );
    if (!endpoint) return undefined;
    const hasRoom = denial === undefined && room.take(this);
    const socket = hasRoom ? this.#openSocket(endpoint) : undefined;
    if (typeof socket !== "object") {
      load?.remove(endpoint.key);
      if (hasRoom) room.give(this);
      return socket;
    }
    own.openFlow(socket.port);
    const flow = new UdpFlow(this, port, origin, socket, endpoint);
    flow.load = load;
    flow.counted = admission.counted;
    flow.header = this.#headerFor(flow);
    this.enter(flow);
    flows.add();
    counters.udpFlows++;
    flow.start();
    this.#enterGate(flow);
    return flow;
  }

  /** Checks whether the plan still allows a flow's client and endpoint. */
  check(flow: UdpFlow): void {
    const { hostname: client } = flow.origin.client;
    const verdict = this.forwarding.clients.verdictFor(this.plan, flow.port.at, client);
    if (!verdict) return this.end(flow);
    if (this.picker.allows(verdict, flow.endpoint.key)) return;
    const endpoint = this.picker.pick({ verdict, client, now: this.now });
    if (!endpoint) return this.end(flow);
    try {
      flow.move(endpoint, this.picker.load);
    } catch {
      // There is no route to it, or no port: the client's next datagram is refused as that of any client.
      return this.end(flow);
    }
    this.forwarding.counters.udpMoved++;
    this.#enterGate(flow);
  }

  /** Ends a flow, unless it has ended: its socket is closed at once. */
  override end(flow: UdpFlow): void {
    if (flow.isClosed) return;
    this.leave(flow);
    this.forwarding.flows.remove();
    this.forwarding.own.closeFlow(flow.ownPort);
    flow.leaveGate?.();
    flow.close();
    flow.port.forget(flow);
  }

  /** Whether the next datagram is to be dropped instead. Answered flows are in no circle, so clients that get answers lose nothing. */
  mayCircle(): boolean {
    const { oldest } = this.items;
    if (!oldest || oldest.isAnswered || ++this.#unanswered % UNANSWERED_PER_DROP !== 0) {
      return false;
    }
    this.forwarding.log.warn("Dropped a datagram at the bound of flows: it may be in a circle", {
      servicePort: this.plan.key,
      cure: "check that no endpoint is a node port or another address of a Service",
    });
    return true;
  }

  /** Replies could not be sent any more. */
  override remove(): void {
    super.remove();
    this.close();
  }

  /** Ends every flow, and takes no more. */
  override close(): void {
    this.#closed = true;
    super.close();
  }

  protected override expire(flow: UdpFlow, after: "idle" | "lifetime"): void {
    if (after === "lifetime") this.forwarding.counters.udpExpired++;
    this.end(flow);
  }

  protected override applySettings(edge: EdgeSettings): void {
    this.#trusted = edge.acceptProxyUdpFrom && new CidrCover(edge.acceptProxyUdpFrom);
    for (const flow of this.items) flow.header = this.#headerFor(flow);
    super.applySettings(edge);
  }

  /** What precedes each datagram to the endpoint. */
  #headerFor({ origin: { client, carried }, port: { at } }: UdpFlow): Uint8Array | undefined {
    if (this.plan.edge?.sendProxyUdp === undefined) return undefined;
    const ends = carried ?? {
      source: { address: client.hostname as IpAddress, port: client.port },
      destination: { address: at.address, port: at.port },
    };
    return proxyHeaderV2(ends, "UDP");
  }

  /** Policies may end the flow from now on. */
  #enterGate(flow: UdpFlow): void {
    flow.leaveGate?.();
    flow.leaveGate = this.forwarding.policies?.enter(relayedBy(flow), () => this.end(flow));
  }

  #report({ at }: UdpPort, { client }: DatagramOrigin, outcome: FlowOutcome): void {
    this.report({ client: client.hostname, clientPort: client.port, at }, outcome);
  }

  /**
   * Whether the sender is this process: a flow's socket, or, with a forged sender, a frontend. Two
   * Services whose endpoints answer everything would exchange answers forever.
   */
  #isOwn({ at }: UdpPort, sender: SocketAddress): boolean {
    const { clients, endpointLoops, log, own } = this.forwarding;
    const isOwn = own.hasFlow(sender.port) && clients.isNode(sender.hostname as IpAddress, at) ||
      endpointLoops.isFrontend(sender, "UDP");
    if (isOwn) {
      log.warn("A datagram to an endpoint came back to kube-relay and is dropped", {
        servicePort: this.plan.key,
        client: sender.hostname,
        cure: CAME_BACK_CURE,
      });
    }
    return isOwn;
  }

  #openSocket({ address: hostname, port }: Endpoint): FlowSocket | "out-of-ports" | undefined {
    const { engine, room } = this.forwarding;
    try {
      return engine.openFlow({ hostname, port });
    } catch (error) {
      const report = { error, relief: RELIEF, servicePort: this.plan.key };
      room.reportError("Cannot open a socket for a flow", report);
      return isOutOfPorts(error) ? "out-of-ports" : undefined;
    }
  }
}

function relayedBy(
  { port: { at }, origin, endpoint }: Pick<UdpFlow, "port" | "origin" | "endpoint">,
): RelayedConnection {
  return { protocol: "UDP", client: origin.client.hostname, at, endpoint };
}
