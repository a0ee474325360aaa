import type { SocketAddress } from "../../../lib/os/network.ts";
import type { Endpoint } from "../../../lib/proxy/endpoint.ts";
import type { ServiceTraffic } from "../../../lib/proxy/service_traffic.ts";
import type { EndpointLoad } from "../balancers.ts";
import type { DatagramReceiver, DatagramSocket } from "../engine.ts";
import type { VerdictName } from "../endpoint_picker.ts";
import type { Relayed } from "../forwarder.ts";
import type { Forwarding } from "../forwarding.ts";
import type { ServiceAddress } from "../listeners.ts";
import type { LeaveGate } from "../policy_gate.ts";
import type { CarriedConnection } from "../proxy_protocol/proxy_header.ts";

/** The client of a datagram. */
export interface DatagramOrigin {
  /** The peer of the socket, which gets the replies: the client, or a trusted proxy. */
  readonly sender: SocketAddress;
  /** The client: the sender, or the one that a PROXY protocol header names. */
  readonly client: SocketAddress;
  /** The header's addresses. */
  readonly carried?: CarriedConnection | undefined;
}

/** The listening socket that a flow came in by. */
export interface UdpFlowPort {
  readonly at: ServiceAddress;
  /** A datagram of the endpoint is to go to the sender, from the address of the Service. */
  reply(flow: UdpFlow, datagram: Uint8Array): Promise<number>;
  /** The flow has ended: the client's next datagram begins another one. */
  forget(flow: UdpFlow): void;
}

/** The two ends of a flow. */
interface UdpFlowEnds {
  readonly port: UdpFlowPort;
  readonly origin: DatagramOrigin;
  /** The flow's own socket, which only its endpoint is to know. */
  readonly socket: DatagramSocket;
  readonly verdict: VerdictName;
  readonly endpoint: Endpoint;
  /** Counters of the Service, where they are wanted. */
  readonly traffic: ServiceTraffic | undefined;
  /** Counts flows of each endpoint, where the choice depends on them: this one already. */
  readonly load: EndpointLoad | undefined;
}

/** The datagrams of one client, with a separate socket so that replies can be assigned. */
export class UdpFlow implements Relayed<UdpFlow>, DatagramReceiver {
  older: UdpFlow | undefined;
  newer: UdpFlow | undefined;
  usedAt = 0;
  lifetime: Relayed<UdpFlow>["lifetime"];
  /** Whether an endpoint has answered. */
  isAnswered = false;
  readonly port: UdpFlowPort;
  readonly origin: DatagramOrigin;
  verdict: VerdictName;
  /** Takes the flow out of the policies' view. */
  leaveGate: LeaveGate | undefined;
  /** The client whose flows a limit counts; `undefined` = not counted. */
  counted: string | undefined;
  /** Precedes each datagram to the endpoint. */
  header: Uint8Array | undefined;
  /** Counts the flow for its endpoint. */
  load: EndpointLoad | undefined;
  readonly #forwarding: Forwarding;
  readonly #socket: DatagramSocket;
  readonly #traffic: ServiceTraffic | undefined;
  #endpoint: Endpoint;
  // Kept, so that no object is made for each datagram.
  #to: SocketAddress;
  #closed = false;

  constructor(forwarding: Forwarding, ends: UdpFlowEnds) {
    const { port, origin, socket, verdict, endpoint, traffic, load } = ends;
    this.#forwarding = forwarding;
    this.#socket = socket;
    this.#traffic = traffic;
    this.port = port;
    this.origin = origin;
    this.verdict = verdict;
    this.load = load;
    this.#endpoint = endpoint;
    this.#to = { hostname: endpoint.address, port: endpoint.port };
  }

  /** The port of the flow's own socket. */
  get ownPort(): number {
    return this.#socket.addr.port;
  }

  get client(): SocketAddress {
    return this.origin.client;
  }

  get endpoint(): Endpoint {
    return this.#endpoint;
  }

  start(): void {
    const { loops } = this.#forwarding;
    loops.add();
    void this.#socket.serve(this).then(() => loops.remove());
  }

  /** Sends a datagram of the client to the endpoint. */
  send(datagram: Uint8Array): Promise<number> {
    if (this.#traffic) this.#traffic.bytesFromClients += datagram.length;
    return this.#socket.send(this.header ? joined(this.header, datagram) : datagram, this.#to);
  }

  /** Switches to another endpoint; later datagrams of the former one are dropped. */
  move(endpoint: Endpoint, load: EndpointLoad | undefined): void {
    this.load?.remove(this.#endpoint.key);
    this.load = load;
    this.#endpoint = endpoint;
    this.#to = { hostname: endpoint.address, port: endpoint.port };
  }

  get isClosed(): boolean {
    return this.#closed;
  }

  close(): void {
    this.#closed = true;
    this.load?.remove(this.#endpoint.key);
    this.#socket.close();
  }

  /** Passes a datagram on to the client. Anyone may send to the socket: only the endpoint is listened to. */
  take(datagram: Uint8Array, from: SocketAddress): Promise<number> | void {
    if (from.port !== this.#to.port || from.hostname !== this.#to.hostname) {
      this.#forwarding.counters.udpForeignDropped++;
      return;
    }
    this.isAnswered = true;
    if (this.#traffic) this.#traffic.bytesToClients += datagram.length;
    return this.port.reply(this, datagram);
  }
}

function joined(header: Uint8Array, datagram: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(header.length + datagram.length);
  bytes.set(header);
  bytes.set(datagram, header.length);
  return bytes;
}
