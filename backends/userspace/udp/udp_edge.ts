import { CidrCover } from "../../../lib/net/cidr_cover.ts";
import { type IpAddress, tryParseIpAddress } from "../../../lib/net/ip_address.ts";
import type { SocketAddress } from "../../../lib/os/network.ts";
import type { EdgeSettings } from "../../../lib/proxy/edge_settings.ts";
import type { ServicePlan } from "../../../lib/proxy/service_plan.ts";
import { serviceKey } from "../../../lib/proxy/service_port_name.ts";
import { ConnectionLimits } from "../connection_limits.ts";
import type { Forwarding } from "../forwarding.ts";
import { parseProxyDatagram, proxyHeaderV2 } from "../proxy_protocol/proxy_header.ts";
import { SessionTimeouts } from "../session_timeouts.ts";
import type { UdpFlow } from "./udp_flow.ts";

interface UdpEdgeContext {
  readonly plan: Pick<ServicePlan, "key" | "name">;
  /** Ends a flow whose lifetime is over. */
  readonly onExpired: (flow: UdpFlow) => void;
}

/** What the limits count of a flow. */
type FlowAdmission = Pick<UdpFlow, "counted">;

/** The PROXY protocol header of a datagram. */
export type DatagramHeader = ReturnType<typeof parseProxyDatagram>;

/** The cure for datagrams without a header. */
const HEADER_CURE =
  "let the sender use PROXY protocol v2, or take its address out of kube-relay.io/accept-proxy-protocol-udp-from";

/** Applies the annotations of a Service to the UDP flows of one of its ports. */
export class UdpEdge {
  readonly #forwarding: Forwarding;
  readonly #context: UdpEdgeContext;
  readonly #limits: ConnectionLimits;
  #lifetimes: SessionTimeouts<UdpFlow> | undefined;
  #sendProxy: EdgeSettings["sendProxyUdp"];
  #trusted: CidrCover | undefined;

  constructor(forwarding: Forwarding, context: UdpEdgeContext) {
    this.#forwarding = forwarding;
    this.#context = context;
    this.#limits = new ConnectionLimits(forwarding.counts, serviceKey(context.plan.name));
  }

  /** Adopts other settings, as {@linkcode TcpEdge.update} does. */
  update(edge: EdgeSettings, flows: Iterable<UdpFlow>): void {
    const { clock, counters } = this.#forwarding;
    const { lifetimeMs } = edge;
    const now = clock.now();
    this.#sendProxy = edge.sendProxyUdp;
    this.#trusted = edge.acceptProxyUdpFrom && new CidrCover(edge.acceptProxyUdpFrom);
    this.#limits.update(edge, flows);
    this.#lifetimes?.close();
    this.#lifetimes = lifetimeMs === undefined
      ? undefined
      : new SessionTimeouts<UdpFlow>(clock, { lifetimeMs }, (flow) => {
        counters.udpExpired++;
        this.#context.onExpired(flow);
      });
    for (const flow of flows) {
      this.#lifetimes?.enter(flow, now);
      flow.header = this.#headerFor(flow);
    }
  }

  /**
   * Reads the header of a datagram of a trusted sender; `undefined` for other senders, whose datagrams
   * are never read. An invalid one is counted.
   */
  readHeader(datagram: Uint8Array, { hostname }: SocketAddress): DatagramHeader | undefined {
    const sender = this.#trusted && tryParseIpAddress(hostname);
    if (sender === undefined || !this.#trusted?.contains(sender)) return undefined;
    const header = parseProxyDatagram(datagram);
    if (header.kind === "invalid") {
      const { counters, log } = this.#forwarding;
      counters.proxyHeaderErrors++;
      log.warn("Dropped a datagram without a valid PROXY protocol header", {
        servicePort: this.#context.plan.key,
        client: hostname,
        reason: header.reason,
        cure: HEADER_CURE,
      });
    }
    return header;
  }

  /** Whether the limits admit a flow of a client; counts it in `admission` if so. */
  admits(admission: FlowAdmission, client: string): boolean {
    const { clock, counters, log } = this.#forwarding;
    const reached = this.#limits.admit(admission, client, clock.now());
    if (reached === undefined) return true;
    counters.udpLimited++;
    log.warn("Refused a flow: a limit of its Service is reached", {
      ...{ servicePort: this.#context.plan.key, client, ...reached },
    });
    return false;
  }

  /** A flow that was admitted is not begun, or has ended. */
  revoke(admission: FlowAdmission): void {
    this.#limits.leave(admission);
  }

  /** A flow begins. */
  enter(flow: UdpFlow, now: number): void {
    this.#lifetimes?.enter(flow, now);
    flow.header = this.#headerFor(flow);
  }

  /** A flow has ended. */
  leave(flow: UdpFlow): void {
    this.#lifetimes?.leave(flow);
    this.revoke(flow);
  }

  #headerFor({ client, origin, port: { at } }: UdpFlow): Uint8Array | undefined {
    if (this.#sendProxy === undefined) return undefined;
    const carried = origin.carried ?? {
      source: { address: client.hostname as IpAddress, port: client.port },
      destination: { address: at.address, port: at.port },
    };
    return proxyHeaderV2(carried, "UDP");
  }
}
