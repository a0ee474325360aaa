import type { IpAddress } from "../../../lib/net/ip_address.ts";
import type { SocketAddress } from "../../../lib/os/network.ts";
import type { EdgeSettings } from "../../../lib/proxy/edge_settings.ts";
import type { ServicePortKey } from "../../../lib/proxy/service_port_name.ts";
import { ConnectionLimits } from "../connection_limits.ts";
import type { Forwarding } from "../forwarding.ts";
import type { ServiceAddress } from "../listeners.ts";
import { proxyHeaderV2 } from "../proxy_protocol/proxy_header.ts";
import { SessionTimeouts } from "../session_timeouts.ts";
import type { UdpFlow } from "./udp_flow.ts";

interface UdpEdgeContext {
  readonly key: ServicePortKey;
  /** Ends a flow whose lifetime is over. */
  readonly onExpired: (flow: UdpFlow) => void;
}

/** Applies the annotations of a Service to the UDP flows of one of its ports. */
export class UdpEdge {
  readonly #forwarding: Forwarding;
  readonly #context: UdpEdgeContext;
  #limits: ConnectionLimits | undefined;
  #lifetimes: SessionTimeouts<UdpFlow> | undefined;
  #sendProxy: EdgeSettings["sendProxyUdp"];

  constructor(forwarding: Forwarding, context: UdpEdgeContext) {
    this.#forwarding = forwarding;
    this.#context = context;
  }

  /** Adopts other settings, as {@linkcode TcpEdge.update} does. */
  update(edge: EdgeSettings, flows: Iterable<UdpFlow>): void {
    const { clock, counters } = this.#forwarding;
    const { lifetimeMs } = edge;
    const now = clock.now();
    this.#sendProxy = edge.sendProxyUdp;
    this.#limits = ConnectionLimits.updated(this.#limits, { settings: edge, now });
    this.#lifetimes?.close();
    this.#lifetimes = lifetimeMs === undefined
      ? undefined
      : new SessionTimeouts<UdpFlow>(clock, { lifetimeMs }, (flow) => {
        counters.udpExpired++;
        this.#context.onExpired(flow);
      });
    for (const flow of flows) {
      this.#lifetimes?.enter(flow, now);
      if (this.#limits === undefined) flow.counted = undefined;
      flow.header = this.#headerFor(flow.client, flow.port.at);
    }
  }

  /** Whether the limits admit a flow of a client besides `open` others; counts it if so. */
  admits(client: string, open: number): boolean {
    if (this.#limits === undefined) return true;
    const { clock, counters, log } = this.#forwarding;
    const reached = this.#limits.admit(client, { open, now: clock.now() });
    if (reached === undefined) return true;
    counters.udpLimited++;
    log.warn("Refused a flow: a limit of its Service is reached", {
      ...{ servicePort: this.#context.key, client, ...reached },
    });
    return false;
  }

  /** A flow that was admitted is not begun. */
  revoke(client: string): void {
    this.#limits?.leave(client);
  }

  /** A flow begins. */
  enter(flow: UdpFlow, now: number): void {
    if (this.#limits) flow.counted = flow.client.hostname;
    this.#lifetimes?.enter(flow, now);
    flow.header = this.#headerFor(flow.client, flow.port.at);
  }

  /** A flow has ended. */
  leave(flow: UdpFlow): void {
    this.#lifetimes?.leave(flow);
    if (flow.counted !== undefined) this.#limits?.leave(flow.counted);
    flow.counted = undefined;
  }

  #headerFor({ hostname, port }: SocketAddress, at: ServiceAddress): Uint8Array | undefined {
    if (this.#sendProxy === undefined) return undefined;
    const source = { address: hostname as IpAddress, port };
    return proxyHeaderV2({ source, destination: { address: at.address, port: at.port } }, "UDP");
  }
}
