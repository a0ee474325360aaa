import type { SocketAddress, UdpSocket } from "../../../lib/os/network.ts";
import { BackOff } from "../../../lib/os/back_off.ts";
import type { Forwarding } from "../forwarding.ts";
import type { ServiceAddress } from "../listeners.ts";
import { systemErrorOf } from "../../../lib/os/socket_errors.ts";
import type { UdpFlow, UdpFlowPort } from "./udp_flow.ts";
import type { UdpForwarder } from "./udp_forwarder.ts";

/** The receiver of datagrams. */
interface UdpTarget {
  readonly at: ServiceAddress;
  readonly forwarder: UdpForwarder;
}

/**
 * One listening socket and the flows of its clients.
 *
 * A loop with one receive and one send at a time. Tried and given up, since CPU per round trip did
 * not fall (25-28 µs each, nginx 14): two buffers in turn with the send not awaited, no await at
 * all, flows found by port number in place of text. What is left is four operations of Deno at
 * about 2.5 µs of user time each.
 */
export class UdpPort implements UdpFlowPort {
  readonly #forwarding: Forwarding;
  readonly #socket: UdpSocket;
  #backOff: BackOff | undefined;
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
    return this.#socket.send(datagram, flow.client);
  }

  forget(flow: UdpFlow): void {
    this.#flows?.delete(clientKey(flow.client));
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
      const [datagram, client] = received;
      const flow = this.#flows?.get(clientKey(client)) ?? this.#open(client);
      if (!flow) {
        counters.udpDropped++;
        continue;
      }
      this.#target.forwarder.touch(flow);
      try {
        // Done before the next receive, since that uses the buffer again.
        await flow.send(datagram);
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
    this.#backOff ??= new BackOff(clock);
    return this.#backOff.pause();
  }

  #open(client: SocketAddress): UdpFlow | undefined {
    const flow = this.#target.forwarder.open(this, client);
    if (flow) (this.#flows ??= new Map()).set(clientKey(client), flow);
    return flow;
  }
}

function clientKey({ hostname, port }: SocketAddress): string {
  return `${hostname} ${port}`;
}
