import type { IpAddress } from "../../../lib/net/ip_address.ts";
import type { SocketAddress, UdpSocket } from "../../../lib/os/network.ts";
import type { EdgeSettings } from "../../../lib/proxy/edge_settings.ts";
import type { EndpointKey } from "../../../lib/proxy/endpoint.ts";
import type { AffinityEntry } from "../../../lib/proxy/packet_explanation.ts";
import type { ServicePlan } from "../../../lib/proxy/service_plan.ts";
import {
  type ServiceKey,
  serviceKey,
  type ServicePortKey,
} from "../../../lib/proxy/service_port_name.ts";
import { isOutOfPorts } from "../../../lib/os/socket_errors.ts";
import type { ServiceTraffic } from "../../../lib/proxy/service_traffic.ts";
import type { EndpointAges } from "../balancing/endpoint_shares.ts";
import type { EndpointPicker, SharedServicePlan } from "../endpoint_picker.ts";
import { ExpiryQueue } from "../expiry_queue.ts";
import type { FlowOutcome, Forwarding } from "../forwarding.ts";
import { CAME_BACK_CURE } from "../own_sockets.ts";
import type { RelayedConnection } from "../policy_gate.ts";
import { type DatagramHeader, UdpEdge } from "./udp_edge.ts";
import { type DatagramOrigin, UdpFlow, type UdpFlowPort } from "./udp_flow.ts";

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
export class UdpForwarder {
  readonly #forwarding: Forwarding;
  readonly #picker: EndpointPicker;
  readonly #flows: ExpiryQueue<UdpFlow>;
  /** Applies the annotations of the Service, once there are any. */
  #edge: UdpEdge | undefined;
  readonly service: ServiceKey;
  readonly use = "flow";
  #plan: ServicePlan;
  #traffic: ServiceTraffic | undefined;
  /** Unanswered flows that were to be ended for new ones. */
  #unanswered = 0;
  #closed = false;

  constructor(forwarding: Forwarding, plan: SharedServicePlan) {
    this.#forwarding = forwarding;
    this.service = serviceKey(plan.name);
    this.#plan = plan;
    this.#picker = forwarding.createPicker(plan);
    this.#flows = new ExpiryQueue(forwarding.clock, {
      ttlMs: forwarding.options.udpTimeoutMs,
      onExpired: (flow) => this.#close(flow),
    });
    if (plan.edge) this.#applySettings(plan.edge);
  }

  get key(): ServicePortKey {
    return this.#plan.key;
  }

  /** Flows that are open now. */
  get connections(): number {
    return this.#flows.size;
  }

  get size(): number {
    return this.#flows.size;
  }

  /** Adopts another plan; flows whose endpoint was removed move, or end if there is no other. */
  update(plan: ServicePlan): void {
    const { edge } = this.#plan;
    this.#plan = plan;
    if (plan.edge !== edge) this.#applySettings(plan.edge);
    this.#picker.update(plan, this.#forwarding.clock.now());
    for (const flow of this.#flows) this.check(flow);
  }

  /**
   * As {@linkcode EndpointPicker.skip}. Flows of endpoints that are skipped move, as nothing else would
   * end them while their client sends.
   */
  skip(unhealthy: ReadonlySet<EndpointKey>): void {
    this.#picker.skip(unhealthy, this.#forwarding.clock.now());
    for (const flow of this.#flows) this.check(flow);
  }

  /** As {@linkcode EndpointPicker.restoreAges}. */
  restoreAges(ages: EndpointAges): void {
    this.#picker.restoreAges(ages, this.#forwarding.clock.now());
  }

  /** As {@linkcode EndpointPicker.remembered}. */
  remembered(client: string): AffinityEntry | undefined {
    return this.#picker.remembered(client, this.#forwarding.clock.now());
  }

  /** The header that a trusted sender has to put before each datagram; `undefined` for others. */
  readHeader(datagram: Uint8Array, sender: SocketAddress): DatagramHeader | undefined {
    return this.#edge?.readHeader(datagram, sender);
  }

  /** A new flow for a client's first datagram; `undefined` when the client is not to be forwarded. */
  open(
    port: UdpFlowPort,
    origin: DatagramOrigin,
  ): UdpFlow | undefined | Promise<UdpFlow | undefined> {
    if (this.#takesNone || this.#isOwn(port, origin.sender)) return undefined;
    const { client, client: { hostname } } = origin;
    const verdict = this.#forwarding.clients.verdictFor(this.#plan, port.at, hostname);
    const admission = { counted: undefined };
    if (verdict !== undefined && (this.#edge?.admits(admission, hostname) ?? true)) {
      return this.#openAdmitted(port, { origin, admission });
    }
    this.#report({ port, client }, { detail: REFUSED });
    return undefined;
  }

  get #takesNone(): boolean {
    return this.#forwarding.draining || this.#closed;
  }

  /** Opens a flow that the limits count, or takes it back from them. */
  #openAdmitted(
    port: UdpFlowPort,
    admitted: AdmittedOrigin,
    isRetry = false,
  ): UdpFlow | undefined | Promise<UdpFlow | undefined> {
    const flow = this.#takesNone ? undefined : this.#openTo(port, admitted);
    const mayRetry = flow === "out-of-ports" && !isRetry && !this.mayCircle();
    if (mayRetry && this.#forwarding.room.closeForPort(this)) {
      // The port is free when the receive that waits on it has been taken back.
      return this.#forwarding.clock.sleep(0).then(() => this.#openAdmitted(port, admitted, true));
    }
    if (flow instanceof UdpFlow) return flow;
    this.#edge?.revoke(admitted.admission);
    return undefined;
  }

  #openTo(
    port: UdpFlowPort,
    { origin, admission }: AdmittedOrigin,
  ): UdpFlow | "out-of-ports" | undefined {
    const { clients, clock, counters, policies, room } = this.#forwarding;
    const { client } = origin;
    const verdict = clients.verdictFor(this.#plan, port.at, client.hostname);
    if (verdict === undefined) return undefined;
    const now = clock.now();
    const endpoint = this.#picker.pick({ verdict, client: client.hostname, now });
    const { load } = this.#picker;
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
    this.#forwarding.own.openFlow(socket.addr.port);
    const flow = new UdpFlow(this.#forwarding, {
      ...{ port, origin, socket, verdict, endpoint, load },
      traffic: this.#countOpened(),
    });
    flow.counted = admission.counted;
    this.#flows.add(flow, now);
    if (this.#flows.size === 1) room.enter(this);
    this.#edge?.enter(flow, now);
    this.#forwarding.flows.add();
    counters.udpFlows++;
    flow.start();
    this.#enterGate(flow);
    return flow;
  }

  /** A datagram went through, in either direction. */
  touch(flow: UdpFlow): void {
    const now = this.#forwarding.clock.now();
    // Its place in the order of last use is brought up to date once in so long, to save CPU.
    if (now - flow.usedAt >= Math.min(this.#flows.ttlMs / 50, 1000)) this.#flows.touch(flow, now);
  }

  /** Checks whether the plan still allows a flow's client and endpoint. */
  check(flow: UdpFlow): void {
    const client = flow.client.hostname;
    const verdict = this.#forwarding.clients.verdictFor(this.#plan, flow.port.at, client);
    if (!verdict) return this.end(flow);
    flow.verdict = verdict;
    if (this.#picker.allows(verdict, flow.endpoint.key)) return;
    const endpoint = this.#picker.pick({ verdict, client, now: this.#forwarding.clock.now() });
    if (!endpoint) return this.end(flow);
    flow.move(endpoint, this.#picker.load);
    this.#forwarding.counters.udpMoved++;
    this.#enterGate(flow);
  }

  /** Ends a flow, unless it has ended: its socket is closed at once. */
  end(flow: UdpFlow): void {
    if (flow.isClosed) return;
    this.#flows.delete(flow);
    this.#close(flow);
  }

  /** Ends up to `count` flows that were unused for so long, the longest unused first. Returns their number. */
  closeSilent(count: number, silentMs = this.#forwarding.options.silentMs): number {
    const before = this.#forwarding.clock.now() - silentMs;
    let closed = 0;
    for (const flow of this.#flows) {
      if (closed === count || flow.usedAt > before) break;
      this.end(flow);
      closed++;
    }
    return closed;
  }

  /** Whether {@linkcode closeSilent} would end one. */
  hasSilent(silentMs: number): boolean {
    const { oldest } = this.#flows;
    return oldest !== undefined && oldest.usedAt <= this.#forwarding.clock.now() - silentMs;
  }

  /** Whether the next datagram is to be dropped instead. Answered flows are in no circle, so clients that get answers lose nothing. */
  mayCircle(): boolean {
    const { oldest } = this.#flows;
    if (!oldest || oldest.isAnswered || ++this.#unanswered % UNANSWERED_PER_DROP !== 0) {
      return false;
    }
    this.#forwarding.log.warn("Dropped a datagram at the bound of flows: it may be in a circle", {
      servicePort: this.#plan.key,
      cure: "check that no endpoint is a node port or another address of a Service",
    });
    return true;
  }

  /** Both ends of a flow may be gone without a sign: its time-out ends it. */
  silentSince(): [] {
    return [];
  }

  /** Ends every flow, and takes no more. */
  close(): void {
    this.#closed = true;
    for (const flow of this.#flows) this.end(flow);
    this.#flows.close();
  }

  #applySettings(edge: EdgeSettings = {}): void {
    this.#edge ??= new UdpEdge(this.#forwarding, {
      plan: this.#plan,
      onExpired: (flow) => this.end(flow),
    });
    this.#edge.update(edge, this.#flows);
    this.#flows.expireAfter(edge.idleMs ?? this.#forwarding.options.udpTimeoutMs);
  }

  /** Policies may end the flow from now on. */
  #enterGate(flow: UdpFlow): void {
    flow.leaveGate?.();
    flow.leaveGate = this.#forwarding.policies?.enter(relayedBy(flow), () => this.end(flow));
  }

  #report(
    { port: { at }, client: { hostname: client, port: clientPort } }: {
      readonly port: UdpFlowPort;
      readonly client: SocketAddress;
    },
    outcome: FlowOutcome,
  ): void {
    const service = this.#plan.key;
    this.#forwarding.report({ protocol: "UDP", service, client, clientPort, at }, outcome);
  }

  /**
   * Whether the sender is this process: a flow's socket, or, with a forged sender, a frontend. Two
   * Services whose endpoints answer everything would exchange answers forever.
   */
  #isOwn({ at }: UdpFlowPort, sender: SocketAddress): boolean {
    const { clients, endpointLoops, log, own } = this.#forwarding;
    const isOwn = own.hasFlow(sender.port) && clients.isNode(sender.hostname as IpAddress, at) ||
      endpointLoops.isFrontend(sender, "UDP");
    if (isOwn) {
      log.warn("A datagram to an endpoint came back to kube-relay and is dropped", {
        servicePort: this.#plan.key,
        client: sender.hostname,
        cure: CAME_BACK_CURE,
      });
    }
    return isOwn;
  }

  /** A Service has its counters from its first flow on: those without traffic take no place. */
  #countOpened(): ServiceTraffic | undefined {
    const traffic = this.#traffic ??= this.#forwarding.traffic?.enter(this.#plan.name);
    if (!traffic) return undefined;
    traffic.opened++;
    traffic.open++;
    return traffic;
  }

  #close(flow: UdpFlow): void {
    this.#forwarding.flows.remove();
    this.#forwarding.own.closeFlow(flow.ownPort);
    this.#forwarding.room.give(this);
    if (this.#traffic) this.#traffic.open--;
    flow.leaveGate?.();
    this.#edge?.leave(flow);
    flow.close();
    flow.port.forget(flow);
    if (this.#flows.size === 0) this.#forwarding.room.leave(this);
  }

  /** On every address, so that the kernel takes the one that leads to the endpoint as the source. */
  #openSocket(hostname: string): UdpSocket | "out-of-ports" | undefined {
    const { network, room } = this.#forwarding;
    try {
      return network.listenUdp({ hostname, port: 0 });
    } catch (error) {
      const report = { error, relief: RELIEF, servicePort: this.#plan.key };
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
