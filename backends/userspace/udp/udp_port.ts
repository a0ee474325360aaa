import type { SocketAddress, UdpSocket } from "../../../lib/os/network.ts";
import { type Backoff, socketBackoff } from "../../../lib/os/backoff.ts";
import type { Forwarding } from "../forwarding.ts";
import type { ServiceAddress } from "../listeners.ts";
import type { CarriedConnection } from "../proxy_protocol/proxy_header.ts";
import { systemErrorOf } from "../../../lib/os/socket_errors.ts";
import type { DatagramOrigin, UdpFlow, UdpFlowPort } from "./udp_flow.ts";
import type { UdpForwarder } from "./udp_forwarder.ts";

/** A flow; `undefined` = the datagram is not forwarded. */
type FoundFlow = ReturnType<UdpForwarder["open"]>;

/** The receiver of datagrams. */
interface UdpTarget {
  readonly at: ServiceAddress;
  readonly forwarder: UdpForwarder;
}

/**
 * One listening socket and the flows of its clients.
 *
 * A loop with one receive and one send at a time. docs/decisions/0029-one-socket-per-udp-flow.md has what
 * was tried instead, with the figures.
 */
export class UdpPort implements UdpFlowPort {
  readonly #forwarding: Forwarding;
  readonly #socket: UdpSocket;
  #backOff: Backoff | undefined;
  // Made with the first flow, like everything that 10,000 idle sockets can do without.
  #flows: Map<string, UdpFlow> | undefined;
  #target: UdpTarget;
  #closed = false;

  constructor(forwarding: Forwarding, { socket, target }: {
    readonly socket: UdpSocket;
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
    this.#forwarding.loops.add();
    this.#receive();
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
    this.#backOff?.cancel();
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

  async #receive(): Promise<void> {
    const { counters, datagramBuffers, loops } = this.#forwarding;
    const buffer = datagramBuffers.take();
    while (!this.#closed) {
      let received: [Uint8Array, SocketAddress];
      try {
        received = await this.#socket.receive(buffer);
      } catch (error) {
        if (!this.#closed) await this.#recover(error);
        continue;
      }
      this.#backOff = undefined;
      const [datagram, sender] = received;
      const { forwarder } = this.#target;
      const header = forwarder.readHeader(datagram, sender);
      const isRefused = header?.kind === "invalid";
      const found = isRefused ? undefined : this.#flowOf(sender, header?.carried);
      // The buffer and the order of datagrams stay as they are until another thread has answered.
      const flow = found instanceof Promise ? await found : found;
      if (isRefused || !flow) {
        counters.udpDropped++;
        continue;
      }
      forwarder.touch(flow);
      try {
        // Done before the next receive, since that uses the buffer again.
        await flow.send(header ? datagram.subarray(header.length) : datagram);
      } catch {
        // Too long for the path, no route, or the flow has just ended: a datagram may be lost.
        counters.udpDropped++;
      }
    }
    datagramBuffers.give(buffer);
    loops.remove();
  }

  #recover(error: unknown): Promise<void> {
    const { clock, log } = this.#forwarding;
    const { socket } = this.at;
    log.warn("Cannot receive a datagram", { socket, error: systemErrorOf(error) ?? error });
    this.#backOff ??= socketBackoff();
    return this.#backOff.pause(clock);
  }

  #flowOf(sender: SocketAddress, carried: CarriedConnection | undefined): FoundFlow {
    const key = originKey({ sender, carried });
    return this.#flows?.get(key) ?? this.#open(originOf(sender, carried), key);
  }

  #open(origin: DatagramOrigin, key: string): FoundFlow {
    const { forwarder } = this.#target;
    const flow = forwarder.open(this, origin);
    if (!(flow instanceof Promise)) return this.#keep(flow, key);
    return flow.then((opened) => {
      if (!this.#closed && this.#target.forwarder === forwarder) return this.#keep(opened, key);
      if (opened) forwarder.end(opened);
      return undefined;
    });
  }

  #keep(flow: UdpFlow | undefined, key: string): UdpFlow | undefined {
    if (flow) (this.#flows ??= new Map()).set(key, flow);
    return flow;
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
