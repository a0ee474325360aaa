/**
 * What the sync of a plan needs of forwarding, and forwarding in this thread.
 *
 * @module
 */
import type { IpAddress } from "../../lib/net/ip_address.ts";
import type { Port, Protocol } from "../../lib/net/port.ts";
import type { JudgeUpdate } from "../../lib/policy/connection_judge.ts";
import type { EndpointKey } from "../../lib/proxy/endpoint.ts";
import type { AffinityEntry } from "../../lib/proxy/packet_explanation.ts";
import type { SharedPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import type { LoopPart } from "./endpoint_loops.ts";
import type { Forwarding } from "./forwarding.ts";
import type { ServiceAddress } from "./listeners.ts";
import { TcpAcceptor } from "./tcp/tcp_acceptor.ts";
import { TcpForwarder } from "./tcp/tcp_forwarder.ts";
import { UdpForwarder } from "./udp/udp_forwarder.ts";
import { UdpPort } from "./udp/udp_port.ts";

/** Forwards the connections or flows of one ServicePort to the endpoints of a plan. */
export interface ServiceForwarder {
  readonly key: ServicePortKey;
  /** Connections or flows that are open now. */
  readonly connections: number;
  update(plan: ServicePlan): void;
  /** Replaces the set of unhealthy endpoints. */
  skip(unhealthy: ReadonlySet<EndpointKey>): void;
  /** The endpoint of a client with session affinity; `undefined` = none. */
  remembered(client: string): AffinityEntry | undefined;
}

/** A listening socket. */
export interface ServiceSocket {
  /** Connections that were accepted stay; flows end. */
  close(): void;
}

/** The use of a socket. */
export interface SocketUse {
  readonly at: ServiceAddress;
  readonly forwarder: ServiceForwarder;
}

/** A socket that could not be opened although it seemed possible. */
export interface FailedSocket {
  readonly socket: ServiceSocket;
  readonly error: Error;
}

/** Opens the sockets of ServicePorts and forwards what arrives. Changes are in force after {@linkcode settle}. */
export interface Forwarders {
  /** Appended to the summary of the mode; empty if there is nothing to say. */
  readonly summary: string;
  /** Threads that each open a socket for every TCP frontend. */
  readonly threads: number;
  /** Resolves when sockets can be opened. */
  start(): Promise<void>;
  create(plan: ServicePlan & { readonly protocol: "TCP" | "UDP" }): ServiceForwarder;
  /** The ServicePort was removed: flows end, connections may finish, as they do with conntrack. */
  remove(forwarder: ServiceForwarder): void;
  /** Opens a socket at a place, which may be a stand-in. Throws errors of the network. */
  open(
    place: { readonly address: IpAddress; readonly port: Port },
    use: SocketUse,
  ): ServiceSocket;
  /** Hands a socket over, or adopts another address of the same forwarder. */
  assign(socket: ServiceSocket, use: SocketUse): void;
  /** Adopts facts about the node. */
  share(shared: SharedPlan): void;
  /** Adopts where this process listens for a ServicePort. */
  replaceFrontends(
    plan: { readonly key: ServicePlan["key"]; readonly protocol: Protocol },
    part: LoopPart,
  ): void;
  /** Resolves when all of the above is in force in each thread. Rejects if nothing can forward. */
  settle(): Promise<readonly FailedSocket[]>;
  /** Brings counters, watches and numbers of connections up to date. Never rejects. */
  refresh(): Promise<void>;
  /** As `PolicedRelay.follow()`. */
  follow(update: JudgeUpdate): Promise<void>;
  /** As `PolicedRelay.recheck()`. */
  recheck(addresses: readonly IpAddress[]): Promise<number>;
  /** Waits for open connections and flows, at most for this time. TCP sockets are closed before. */
  drain(timeoutMs: number): Promise<void>;
  /** Ends everything. Sockets are closed before. */
  close(): Promise<void>;
}

/** Time for UDP flows during a drain: long enough for a pending answer. */
const UDP_DRAIN_MS = 1000;

/** Forwards in this thread. */
export class LocalForwarders implements Forwarders {
  readonly summary: string;
  readonly threads = 1;
  readonly #forwarding: Forwarding;

  /** `refusal`: why there are no workers although they are wanted. */
  constructor(forwarding: Forwarding, refusal?: string) {
    this.#forwarding = forwarding;
    this.summary = refusal === undefined
      ? ""
      : `; one thread forwards, as sockets cannot be shared between workers: ${refusal}`;
  }

  async start(): Promise<void> {}

  create(plan: ServicePlan): TcpForwarder | UdpForwarder {
    return plan.protocol === "TCP"
      ? new TcpForwarder(this.#forwarding, plan)
      : new UdpForwarder(this.#forwarding, plan);
  }

  remove(forwarder: ServiceForwarder): void {
    if (forwarder instanceof TcpForwarder) forwarder.leaveService();
    else if (forwarder instanceof UdpForwarder) forwarder.close();
  }

  open(
    { address: hostname, port }: { readonly address: IpAddress; readonly port: Port },
    { at, forwarder }: SocketUse,
  ): TcpAcceptor | UdpPort {
    const { engine, isShared } = this.#forwarding;
    let opened: TcpAcceptor | UdpPort;
    if (forwarder instanceof TcpForwarder) {
      const listener = engine.listenTcp({ hostname, port }, isShared);
      opened = new TcpAcceptor(this.#forwarding, { listener, target: { at, forwarder } });
    } else if (forwarder instanceof UdpForwarder) {
      const socket = engine.listenUdp({ hostname, port });
      opened = new UdpPort(this.#forwarding, { socket, target: { at, forwarder } });
    } else throw new TypeError("Cannot open a socket for a forwarder of another thread");
    opened.start();
    return opened;
  }

  assign(socket: ServiceSocket, { at, forwarder }: SocketUse): void {
    if (socket instanceof TcpAcceptor && forwarder instanceof TcpForwarder) {
      socket.assign({ at, forwarder });
    } else if (socket instanceof UdpPort && forwarder instanceof UdpForwarder) {
      socket.assign({ at, forwarder });
    }
  }

  /** The backend has brought the clients and loops of this thread up to date. */
  share(): void {}
  replaceFrontends(): void {}

  settle(): Promise<readonly FailedSocket[]> {
    return Promise.resolve([]);
  }

  async refresh(): Promise<void> {}

  /** The gate asks the judge itself. */
  async follow(): Promise<void> {}

  recheck(addresses: readonly IpAddress[]): Promise<number> {
    return this.#forwarding.policies?.recheck(addresses) ?? Promise.resolve(0);
  }

  async drain(timeoutMs: number): Promise<void> {
    const { clock, flows, sessions } = this.#forwarding;
    this.#forwarding.draining = true;
    await clock.sleep(0);
    const stop = new AbortController();
    const atMost = (ms: number) =>
      clock.sleep(Math.min(ms, timeoutMs), stop.signal).catch(() => {});
    await Promise.all([
      Promise.race([sessions.zero(), atMost(timeoutMs)]),
      Promise.race([flows.zero(), atMost(UDP_DRAIN_MS)]),
    ]);
    stop.abort();
  }

  async close(): Promise<void> {
    this.#forwarding.close();
    await this.#forwarding.loops.zero();
  }
}
