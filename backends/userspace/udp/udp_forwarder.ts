import { CidrCover } from "../../../lib/net/cidr_cover.ts";
import { type IpAddress, tryParseIpAddress } from "../../../lib/net/ip_address.ts";
import type { SocketAddress } from "../../../lib/os/network.ts";
import { isOutOfPorts } from "../../../lib/os/socket_errors.ts";
import type { EdgeSettings } from "../../../lib/proxy/edge_settings.ts";
import type { EndpointKey } from "../../../lib/proxy/endpoint.ts";
import type { ServicePlan } from "../../../lib/proxy/service_plan.ts";
import type { SharedServicePlan } from "../endpoint_picker.ts";
import type { DatagramSocket } from "../engine.ts";
import { Forwarder } from "../forwarder.ts";
import type { FlowOutcome, Forwarding } from "../forwarding.ts";
import { CAME_BACK_CURE } from "../own_sockets.ts";
import type { RelayedConnection } from "../policy_gate.ts";
import { parseProxyDatagram, proxyHeaderV2 } from "../proxy_protocol/proxy_header.ts";
import { type DatagramOrigin, UdpFlow, type UdpFlowPort } from "./udp_flow.ts";

/** The PROXY protocol header of a datagram. */
type DatagramHeader = ReturnType<typeof parseProxyDatagram>;

/** The cure for datagrams without a header. */
const HEADER_CURE =
  "let the sender use PROXY protocol v2, or take its address out of kube-relay.io/accept-proxy-protocol-udp-from";

/** The client of a flow that the limits count. */
interface AdmittedOrigin {
  readonly origin: DatagramOrigin;
  readonly admission: Pick<UdpFlow, "counted">;
}

/** Number of silent TCP connections to close when no files are left. */
const RELIEF = 4;

/**
 * One in this many datagrams is dropped instead of ending an unanswered flow. A datagram that circles
 * between nodes opens such a flow at each turn, and a single drop ends the circle.
 */
const UNANSWERED_PER_DROP = 8;

/** The description of a datagram without a flow. */
const REFUSED = "not forwarded: the sender is not let in, or there is no endpoint for it";

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
  readHeader(datagram: Uint8Array, { hostname }: SocketAddress): DatagramHeader | undefined {
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
  open(
    port: UdpFlowPort,
    origin: DatagramOrigin,
  ): UdpFlow | undefined | Promise<UdpFlow | undefined> {
    if (this.#takesNone || this.#isOwn(port, origin.sender)) return undefined;
    const { client, client: { hostname } } = origin;
    const verdict = this.forwarding.clients.verdictFor(this.plan, port.at, hostname);
    const admission = { counted: undefined };
    if (verdict !== undefined && this.admits(admission, hostname)) {
      return this.#openAdmitted(port, { origin, admission });
    }
    this.#report({ port, client }, { detail: REFUSED });
    return undefined;
  }

  get #takesNone(): boolean {
    return this.forwarding.draining || this.#closed;
  }

  /** Opens a flow that the limits count, or takes it back from them. */
  #openAdmitted(
    port: UdpFlowPort,
    admitted: AdmittedOrigin,
    isRetry = false,
  ): UdpFlow | undefined | Promise<UdpFlow | undefined> {
    const flow = this.#takesNone ? undefined : this.#openTo(port, admitted);
    const mayRetry = flow === "out-of-ports" && !isRetry && !this.mayCircle();
    if (mayRetry && this.forwarding.room.closeForPort(this)) {
      // The port is free when the receive that waits on it has been taken back.
      return this.forwarding.clock.sleep(0).then(() => this.#openAdmitted(port, admitted, true));
    }
    if (flow instanceof UdpFlow) return flow;
    this.revoke(admitted.admission);
    return undefined;
  }

  #openTo(
    port: UdpFlowPort,
    { origin, admission }: AdmittedOrigin,
  ): UdpFlow | "out-of-ports" | undefined {
    const { clients, clock, counters, policies, room } = this.forwarding;
    const { client } = origin;
    const verdict = clients.verdictFor(this.plan, port.at, client.hostname);
    if (verdict === undefined) return undefined;
    const now = clock.now();
    const endpoint = this.picker.pick({ verdict, client: client.hostname, now });
    const { load } = this.picker;
    const denial = endpoint && policies?.denialOf(relayedBy({ port, client, endpoint }));
    this.#report({ port, client }, outcomeOf(endpoint?.key, denial));
    if (!endpoint) return undefined;
    const hasRoom = denial === undefined && room.take(this);
    const socket = hasRoom
      ? this.#openSocket(endpoint.address.includes(":") ? "::" : "0.0.0.0")
      : undefined;
    if (typeof socket !== "object") {
      load?.remove(endpoint.key);
      if (hasRoom) room.give(this);
      return socket;
    }
    this.forwarding.own.openFlow(socket.addr.port);
    const flow = new UdpFlow(this.forwarding, {
      ...{ port, origin, socket, verdict, endpoint, load, traffic: this.traffic },
    });
    flow.counted = admission.counted;
    flow.header = this.#headerFor(flow);
    this.enter(flow);
    this.forwarding.flows.add();
    counters.udpFlows++;
    flow.start();
    this.#enterGate(flow);
    return flow;
  }

  /** Checks whether the plan still allows a flow's client and endpoint. */
  check(flow: UdpFlow): void {
    const client = flow.client.hostname;
    const verdict = this.forwarding.clients.verdictFor(this.plan, flow.port.at, client);
    if (!verdict) return this.end(flow);
    flow.verdict = verdict;
    if (this.picker.allows(verdict, flow.endpoint.key)) return;
    const endpoint = this.picker.pick({ verdict, client, now: this.forwarding.clock.now() });
    if (!endpoint) return this.end(flow);
    flow.move(endpoint, this.picker.load);
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
  #headerFor({ client, origin, port: { at } }: UdpFlow): Uint8Array | undefined {
    if (this.plan.edge?.sendProxyUdp === undefined) return undefined;
    const carried = origin.carried ?? {
      source: { address: client.hostname as IpAddress, port: client.port },
      destination: { address: at.address, port: at.port },
    };
    return proxyHeaderV2(carried, "UDP");
  }

  /** Policies may end the flow from now on. */
  #enterGate(flow: UdpFlow): void {
    flow.leaveGate?.();
    flow.leaveGate = this.forwarding.policies?.enter(relayedBy(flow), () => this.end(flow));
  }

  #report(
    { port: { at }, client: { hostname: client, port: clientPort } }: {
      readonly port: UdpFlowPort;
      readonly client: SocketAddress;
    },
    outcome: FlowOutcome,
  ): void {
    this.report({ client, clientPort, at }, outcome);
  }

  /**
   * Whether the sender is this process: a flow's socket, or, with a forged sender, a frontend. Two
   * Services whose endpoints answer everything would exchange answers forever.
   */
  #isOwn({ at }: UdpFlowPort, sender: SocketAddress): boolean {
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

  /** On every address, so that the kernel takes the one that leads to the endpoint as the source. */
  #openSocket(hostname: string): DatagramSocket | "out-of-ports" | undefined {
    const { engine, room } = this.forwarding;
    try {
      return engine.listenUdp({ hostname, port: 0 });
    } catch (error) {
      const report = { error, relief: RELIEF, servicePort: this.plan.key };
      room.reportError("Cannot open a socket for a flow", report);
      return isOutOfPorts(error) ? "out-of-ports" : undefined;
    }
  }
}

function relayedBy(
  { port, client, endpoint }: Pick<UdpFlow, "port" | "client" | "endpoint">,
): RelayedConnection {
  return { protocol: "UDP", client: client.hostname, at: port.at, endpoint };
}

function outcomeOf(
  endpoint: EndpointKey | undefined,
  denial: string | undefined,
): FlowOutcome {
  if (endpoint === undefined) return { detail: REFUSED };
  if (denial === undefined) return { endpoint };
  return { detail: `not forwarded: NetworkPolicies deny it: ${endpoint} (${denial})` };
}
