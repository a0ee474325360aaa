import type { SocketAddress } from "../../../lib/os/network.ts";
import type { DatagramReceiver, DatagramSocket } from "../engine.ts";
import type { Forwarding } from "../forwarding.ts";
import type { ServiceAddress } from "../listeners.ts";
import type { CarriedConnection } from "../proxy_protocol/proxy_header.ts";
import { systemErrorOf } from "../../../lib/os/socket_errors.ts";
import type { DatagramOrigin, UdpFlow, UdpFlowPort } from "./udp_flow.ts";
import type { UdpForwarder } from "./udp_forwarder.ts";

/** The receiver of datagrams. */
interface UdpTarget {
  readonly at: ServiceAddress;
  readonly forwarder: UdpForwarder;
}

/** One listening socket and the flows of its clients. */
export class UdpPort implements UdpFlowPort, DatagramReceiver {
  readonly #forwarding: Forwarding;
  readonly #socket: DatagramSocket;
  // Made with the first flow, like everything that 10,000 idle sockets can do without.
  #flows: Map<string, UdpFlow> | undefined;
  #target: UdpTarget;
  #closed = false;

  constructor(forwarding: Forwarding, { socket, target }: {
    readonly socket: DatagramSocket;
    readonly target: UdpTarget;
  }) {
    this.#forwarding = forwarding;
    this.#socket = socket;
    this.#target = target;
  }

  get addr(): SocketAddress {
    return this.#socket.addr;
  }

  get at(): ServiceAddress {
    return this.#target.at;
  }

  start(): void {
    const { loops } = this.#forwarding;
    loops.add();
    void this.#socket.serve(this).then(() => loops.remove());
  }

  /** Assigns the socket to another target. Flows of the former one end. */
  assign(target: UdpTarget): void {
    const { forwarder } = this.#target;
    if (target.forwarder !== forwarder) this.#endFlows();
    this.#target = target;
    for (const flow of this.#flows?.values() ?? []) forwarder.check(flow);
  }

  /** Closes the socket, and its flows with it: their replies could not be sent from it. */
  close(): void {
    this.#closed = true;
    this.#endFlows();
    this.#socket.close();
  }

  reply(flow: UdpFlow, datagram: Uint8Array): Promise<number> {
    this.#target.forwarder.touch(flow);
    return this.#socket.send(datagram, flow.origin.sender);
  }

  forget(flow: UdpFlow): void {
    this.#flows?.delete(originKey(flow.origin));
  }

  #endFlows(): void {
    for (const flow of this.#flows?.values() ?? []) this.#target.forwarder.end(flow);
  }

  take(datagram: Uint8Array, sender: SocketAddress): Promise<unknown> | void {
    const { forwarder } = this.#target;
    const header = forwarder.readHeader(datagram, sender);
    if (header?.kind === "invalid") return this.onLost();
    const payload = header ? datagram.subarray(header.length) : datagram;
    const key = originKey({ sender, carried: header?.carried });
    const known = this.#flows?.get(key);
    if (known) return this.#forward(known, payload);
    const opened = forwarder.open(this, originOf(sender, header?.carried));
    if (!(opened instanceof Promise)) return this.#begin(opened, key, payload);
    return opened.then((flow) => {
      if (!this.#closed && this.#target.forwarder === forwarder) {
        return this.#begin(flow, key, payload);
      }
      if (flow) forwarder.end(flow);
      this.onLost();
    });
  }

  onLost(): void {
    this.#forwarding.counters.udpDropped++;
  }

  onError(error: unknown): void {
    const { socket } = this.at;
    this.#forwarding.log.warn("Cannot receive a datagram", {
      ...{ socket, error: systemErrorOf(error) ?? error },
    });
  }

  #begin(flow: UdpFlow | undefined, key: string, datagram: Uint8Array): Promise<unknown> | void {
    if (flow === undefined) return this.onLost();
    (this.#flows ??= new Map()).set(key, flow);
    return this.#forward(flow, datagram);
  }

  #forward(flow: UdpFlow, datagram: Uint8Array): Promise<unknown> {
    this.#target.forwarder.touch(flow);
    return flow.send(datagram);
  }
}

function originOf(
  sender: SocketAddress,
  carried: CarriedConnection | undefined,
): DatagramOrigin {
  if (carried === undefined) return { sender, client: sender };
  const { source: { address: hostname, port } } = carried;
  return { sender, client: { hostname, port }, carried };
}

/** A proxy may send the datagrams of all its clients from one port. */
function originKey({ sender, carried }: Omit<DatagramOrigin, "client">): string {
  const key = `${sender.hostname} ${sender.port}`;
  if (carried === undefined) return key;
  const { source, destination } = carried;
  const ends = [source.address, source.port, destination.address, destination.port];
  return `${key} ${ends.join(" ")}`;
}
