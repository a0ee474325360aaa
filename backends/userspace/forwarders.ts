/**
 * What the sync of a plan needs of forwarding, and forwarding in this thread.
 *
 * @module
 */
import type { IpAddress } from "../../lib/net/ip_address.ts";
import type { Port } from "../../lib/net/port.ts";
import type { MemoryRegion } from "../../lib/os/shared_memory.ts";
import type { JudgeUpdate } from "../../lib/policy/connection_judge.ts";
import type { EndpointKey } from "../../lib/proxy/endpoint.ts";
import type { AffinityEntry } from "../../lib/proxy/packet_explanation.ts";
import type { SharedPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import type { EndpointAges } from "./balancers.ts";
import type { SharedServicePlan } from "./endpoint_picker.ts";
import type { Forwarding } from "./forwarding.ts";
import type { ServiceAddress, SocketKey } from "./listeners.ts";
import { TcpAcceptor } from "./tcp/tcp_acceptor.ts";
import { TcpForwarder } from "./tcp/tcp_forwarder.ts";
import { UdpForwarder, UdpPort } from "./udp/udp_forwarder.ts";

/** Where a socket is bound: the address of a Service, or its stand-in. */
export interface Place {
  readonly address: IpAddress;
  readonly port: Port;
}

/**
 * One step of a sync. Plain data, which workers get as it is. A forwarder has the key of its
 * ServicePort, and a socket that of the place where it is bound.
 */
export type Command =
  /** The facts by which clients are told apart. */
  | {
    readonly op: "share";
    readonly shared: Pick<SharedPlan, "interfaceAddresses" | "localTraffic">;
  }
  /** Where this process listens for a ServicePort for UDP. */
  | {
    readonly op: "frontends";
    readonly key: ServicePortKey;
    readonly frontends: readonly ServiceAddress[];
  }
  /**
   * Creates the forwarder, or gives it another plan. `ages`: slow starts that go on. `affinity`: where
   * the workers have its clients.
   */
  | {
    readonly op: "forward";
    readonly plan: SharedServicePlan;
    readonly ages?: EndpointAges;
    readonly affinity?: MemoryRegion;
  }
  /** Replaces the set of unhealthy endpoints. */
  | {
    readonly op: "skip";
    readonly key: ServicePortKey;
    readonly unhealthy: ReadonlySet<EndpointKey>;
  }
  /** The ServicePort was removed: flows end, connections may finish, as they do with conntrack. */
  | { readonly op: "remove"; readonly key: ServicePortKey }
  | OpenCommand
  /** A ServicePort shares a socket no more. */
  | { readonly op: "leave"; readonly socket: SocketKey; readonly key: ServicePortKey }
  /** Connections that were accepted stay; flows end. */
  | { readonly op: "close"; readonly socket: SocketKey }
  /** All has been said: what no command has named since {@linkcode LocalForwarders.disclaim} goes. */
  | { readonly op: "release" };

/**
 * Opens a socket, or gives it to another forwarder or another address of the same one. Where the address
 * has server names, the socket is given to this forwarder as well, for these names.
 */
export interface OpenCommand {
  readonly op: "open";
  readonly socket: SocketKey;
  readonly place: Place;
  readonly key: ServicePortKey;
  readonly at: ServiceAddress;
}

/** A socket that could not be opened although it seemed possible, with the system error if it is one. */
export interface RefusedSocket {
  readonly socket: SocketKey;
  readonly message: string;
  readonly code: string | undefined;
}

/** Opens the sockets of ServicePorts and forwards what arrives. */
export interface Forwarders {
  /** Appended to the summary of the mode; empty if there is nothing to say. */
  readonly summary: string;
  /** Threads that each open a socket for every TCP frontend. */
  readonly threads: number;
  /** Resolves when sockets can be opened. */
  start(): Promise<void>;
  /** Carries out a command; it is in force after {@linkcode settle}. Throws errors of the network. */
  apply(command: Command): void;
  /** Resolves when all commands are in force in each thread. Rejects if nothing can forward. */
  settle(): Promise<readonly RefusedSocket[]>;
  /** Open connections or flows of a ServicePort. */
  connections(key: ServicePortKey): number;
  /** The endpoint of a client with session affinity; `undefined` = none. */
  remembered(key: ServicePortKey, client: string): Promise<AffinityEntry | undefined>;
  /** Brings counters, watches and numbers of connections up to date. Never rejects. */
  refresh(): Promise<void>;
  /** As `PolicedRelay.follow()`. */
  follow(update: JudgeUpdate): Promise<void>;
  /** As `PolicedRelay.recheck()`. */
  recheck(addresses: readonly IpAddress[]): Promise<number>;
  /** Waits for open connections and flows, at most for this time. TCP sockets are closed before. */
  drain(timeoutMs: number): Promise<void>;
  /** Ends everything. */
  close(): Promise<void>;
}

/** Time for UDP flows during a drain: long enough for a pending answer. */
const UDP_DRAIN_MS = 1000;

/** Forwards in this thread. */
export class LocalForwarders implements Forwarders {
  readonly summary: string;
  readonly threads = 1;
  readonly forwarders = new Map<ServicePortKey, TcpForwarder | UdpForwarder>();
  readonly sockets = new Map<SocketKey, TcpAcceptor | UdpPort>();
  /** What no command has named yet, and which forwarders of a socket were. */
  readonly #unclaimed = { keys: new Set<ServicePortKey>(), sockets: new Set<SocketKey>() };
  #claims: Set<string> | undefined;
  readonly #forwarding: Forwarding;

  /** `note`: why nothing else forwards although it is wanted. */
  constructor(forwarding: Forwarding, note?: string) {
    this.#forwarding = forwarding;
    this.summary = note === undefined ? "" : `; one thread forwards${note}`;
  }

  async start(): Promise<void> {}

  apply(command: Command): void {
    switch (command.op) {
      case "share":
        return this.#forwarding.clients.update(command.shared);
      case "frontends":
        // The loops of this thread are up to date.
        return;
      case "forward": {
        const { plan, ages } = command;
        this.#unclaimed.keys.delete(plan.key);
        const known = this.forwarders.get(plan.key);
        const forwarder = known ??
          new (plan.protocol === "TCP" ? TcpForwarder : UdpForwarder)(this.#forwarding, plan);
        if (known) known.update(plan);
        else this.forwarders.set(plan.key, forwarder);
        return ages && forwarder.restoreAges(ages);
      }
      case "skip":
        return this.forwarders.get(command.key)?.skip(command.unhealthy);
      case "remove":
        this.forwarders.get(command.key)?.remove();
        return void this.forwarders.delete(command.key);
      case "open":
        return this.#open(command);
      case "leave": {
        const acceptor = this.sockets.get(command.socket);
        return acceptor instanceof TcpAcceptor ? acceptor.leave(command.key) : undefined;
      }
      case "close":
        this.sockets.get(command.socket)?.close();
        return void this.sockets.delete(command.socket);
      case "release":
        return this.#release();
    }
  }

  /** Another main process begins to say what is wanted. */
  disclaim(): void {
    for (const [key, forwarder] of this.forwarders) {
      this.#unclaimed.keys.add(key);
      // It has checked no endpoint yet.
      forwarder.skip(new Set());
    }
    for (const socket of this.sockets.keys()) this.#unclaimed.sockets.add(socket);
    this.#claims = new Set();
  }

  #release(): void {
    const { keys, sockets } = this.#unclaimed;
    for (const socket of sockets) this.apply({ op: "close", socket });
    for (const [socket, acceptor] of this.#claims ? this.sockets : []) {
      if (!(acceptor instanceof TcpAcceptor) || !acceptor.isShared) continue;
      for (const key of this.forwarders.keys()) {
        if (!this.#claims!.has(`${socket} ${key}`)) acceptor.leave(key);
      }
    }
    for (const key of keys) this.apply({ op: "remove", key });
    keys.clear();
    sockets.clear();
    this.#claims = undefined;
  }

  settle(): Promise<readonly RefusedSocket[]> {
    return Promise.resolve([]);
  }

  connections(key: ServicePortKey): number {
    return this.forwarders.get(key)?.connections ?? 0;
  }

  remembered(key: ServicePortKey, client: string): Promise<AffinityEntry | undefined> {
    return Promise.resolve(this.forwarders.get(key)?.remembered(client));
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
    this.closeSockets();
    this.#forwarding.close();
    await this.#forwarding.loops.zero();
  }

  closeSockets(): void {
    for (const socket of this.sockets.values()) socket.close();
    this.sockets.clear();
  }

  #open({ socket, key, place: { address: hostname, port }, at }: OpenCommand): void {
    const { engine, isShared } = this.#forwarding;
    this.#unclaimed.sockets.delete(socket);
    this.#claims?.add(`${socket} ${key}`);
    const forwarder = this.forwarders.get(key);
    const known = this.sockets.get(socket);
    let opened: TcpAcceptor | UdpPort;
    if (forwarder instanceof TcpForwarder) {
      if (known instanceof TcpAcceptor) return known.assign(forwarder, at);
      const listener = engine.listenTcp({ hostname, port }, isShared);
      opened = new TcpAcceptor(this.#forwarding, listener, forwarder, at);
    } else if (forwarder) {
      if (known instanceof UdpPort) return known.assign(forwarder, at);
      const udp = engine.listenUdp({ hostname, port });
      opened = new UdpPort(this.#forwarding, udp, forwarder, at);
    } else return;
    this.sockets.set(socket, opened);
    opened.start();
  }
}
