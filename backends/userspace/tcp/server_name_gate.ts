import { ANY_NAME, findByServerName, type ServerName } from "../../../lib/net/server_name.ts";
import type { IpAddress } from "../../../lib/net/ip_address.ts";
import type { LogFields } from "../../../lib/log/logger.ts";
import type { ServicePortKey } from "../../../lib/proxy/service_port_name.ts";
import type { EngineConnection } from "../engine.ts";
import type { Forwarding } from "../forwarding.ts";
import type { ServiceAddress, SocketKey } from "../listeners.ts";
import { MOST_HEADER_BYTES, parseProxyHeader } from "../proxy_protocol/proxy_header.ts";
import { AwaitedStarts, MOST_WAITING, type NoStart, readStart } from "./awaited_starts.ts";
import { MOST_HELLO_BYTES, parseClientHello } from "./client_hello.ts";
import type { ConnectionStart } from "./proxy_header_gate.ts";
import type { TcpForwarder } from "./tcp_forwarder.ts";

/** Time for a ClientHello, with the PROXY protocol header before it. */
const HELLO_MS = 3000;
/** Of the connections that wait, those that one client address may have, in each thread. */
const MOST_OF_CLIENT = MOST_WAITING / 8;
/** A usual ClientHello fits. */
const FIRST_BYTES = 4096;

/** The part of a forwarder that is used before a connection is its own. */
export type ConnectionTarget = Pick<TcpForwarder, "accept" | "key" | "trusts">;

/** A ServicePort that connections go to. */
interface Sharer {
  readonly forwarder: ConnectionTarget;
  readonly at: ServiceAddress;
}

/** What was read before it was known where a connection goes. */
type HelloStart = ConnectionStart & {
  readonly kind: "start";
  readonly name: ServerName | undefined;
};

/**
 * Reads the server name with which each connection begins at an address that several ServicePorts share,
 * and passes the connection on as if it had come in at the one that has the name. Until then it
 * counts for this socket and its client, and for no Service.
 */
export class ServerNameGate {
  readonly use = "connection";
  readonly key: SocketKey;
  readonly #forwarding: Forwarding;
  readonly #sharers = new Map<ServicePortKey, Sharer>();
  readonly #byName = new Map<string, Sharer>();
  readonly #waiting: AwaitedStarts;
  /** The connections that wait, by client address. */
  readonly #clients = new Map<string, number>();

  constructor(forwarding: Forwarding, socket: SocketKey) {
    this.#forwarding = forwarding;
    this.key = socket;
    this.#waiting = new AwaitedStarts(forwarding.clock, HELLO_MS);
  }

  /** Connections that wait have a share of the open files, as those of a Service have. */
  get service(): string {
    return this.key;
  }

  get size(): number {
    return this.#waiting.size;
  }

  /** Sends the connections for some names to a ServicePort, from now on. */
  share(forwarder: ConnectionTarget, at: ServiceAddress): void {
    this.leave(forwarder.key);
    const sharer = { forwarder, at };
    this.#sharers.set(forwarder.key, sharer);
    for (const name of at.names ?? [ANY_NAME]) this.#byName.set(name, sharer);
  }

  /** Sends no more connections to a ServicePort. */
  leave(key: ServicePortKey): void {
    const sharer = this.#sharers.get(key);
    this.#sharers.delete(key);
    for (const name of sharer?.at.names ?? [ANY_NAME]) {
      // Another one may have got the name before.
      if (this.#byName.get(name) === sharer) this.#byName.delete(name);
    }
  }

  /** Takes a connection. */
  accept(connection: EngineConnection): void {
    const { counters, log, room } = this.#forwarding;
    const { hostname: client } = connection.remoteAddr;
    const ofClient = this.#clients.get(client) ?? 0;
    const isAbove = ofClient >= MOST_OF_CLIENT && !this.#isProxy(client);
    if (isAbove || !room.take(this)) {
      counters.tcpRefused++;
      if (isAbove) {
        const message = "Refused a connection: too many of its client have sent no ClientHello";
        log.warn(message, { socket: this.key, client, bound: MOST_OF_CLIENT });
      }
      return connection.close();
    }
    this.#clients.set(client, ofClient + 1);
    void this.#serve(connection, client);
  }

  hasSilent(): boolean {
    return this.#waiting.hasLate;
  }

  closeSilent(count: number): number {
    return this.#waiting.closeLate(count);
  }

  close(): void {
    this.#waiting.close();
  }

  /** Does not reject. */
  async #serve(connection: EngineConnection, client: string): Promise<void> {
    const { loops, room, sessions } = this.#forwarding;
    loops.add();
    sessions.add();
    const waiting = this.#waiting.add(() => connection.close());
    room.enter(this);
    let read: HelloStart | NoStart;
    try {
      read = await readHello(connection);
    } catch {
      read = { kind: "nothing" };
    }
    this.#waiting.delete(waiting);
    if (this.size === 0) room.leave(this);
    room.give(this);
    const ofClient = this.#clients.get(client) ?? 0;
    if (ofClient > 1) this.#clients.set(client, ofClient - 1);
    else this.#clients.delete(client);
    // It was closed here, perhaps when it had just come.
    if (waiting.reason !== undefined) read = { kind: "invalid", reason: waiting.reason };
    if (read.kind === "start") this.#pass(connection, read);
    else if (waiting.reason === undefined) connection.close();
    if (read.kind === "nothing") {
      this.#show(connection, "closed: it ended before a ClientHello came");
    }
    if (read.kind === "invalid") {
      const { reason } = read;
      this.#show(connection, `closed, as it has no valid ClientHello: ${reason}`);
      this.#count("Closed a connection without a valid ClientHello", { client, reason });
    }
    sessions.remove();
    loops.remove();
  }

  /** Whether a client stands for many. */
  #isProxy(client: string): boolean {
    return this.#sharers.values().some(({ forwarder }) => forwarder.trusts(client));
  }

  #pass(connection: EngineConnection, { name, ...start }: HelloStart) {
    const { hostname: client } = connection.remoteAddr;
    const found = findByServerName(this.#byName, name);
    // A header that the ServicePort does not expect is data, and not that of TLS.
    const sharer = start.header && !found?.forwarder.trusts(client)
      ? this.#byName.get(ANY_NAME)
      : found;
    if (sharer) return sharer.forwarder.accept(connection, sharer.at, start);
    connection.close();
    const serverName = name ?? "(none)";
    this.#show(connection, `closed: no Service here has its server name, ${serverName}`);
    this.#count("Closed a connection: no Service has its server name", { client, serverName });
  }

  /** Shows a connection to those who watch, as one of a ServicePort that has the address. */
  #show({ remoteAddr: { hostname, port: clientPort } }: EngineConnection, detail: string): void {
    const { clock, watches } = this.#forwarding;
    const [sharer] = this.#sharers.values();
    if (watches.isIdle || !sharer) return;
    const { forwarder: { key: service }, at: { address: to, port } } = sharer;
    const client = hostname as IpAddress;
    watches.report({ protocol: "TCP", service, client, clientPort, to, port, detail }, clock.now());
  }

  #count(message: string, fields: LogFields): void {
    const { counters, log } = this.#forwarding;
    counters.tcpRefused++;
    counters.serverNameErrors++;
    log.warn(message, { socket: this.key, ...fields });
  }
}

function readHello(connection: EngineConnection): Promise<HelloStart | NoStart> {
  const sizes = [FIRST_BYTES, MOST_HEADER_BYTES + MOST_HELLO_BYTES] as const;
  return readStart(connection, sizes, (received): HelloStart | NoStart | number => {
    const header = parseProxyHeader(received);
    if (header.kind === "incomplete") return 0;
    const begin = header.kind === "complete" ? header.length : 0;
    const hello = parseClientHello(received.subarray(begin));
    if (hello.kind === "invalid") return hello;
    if (hello.kind === "complete") {
      const rest = { received, ...(header.kind === "complete" && { header }) };
      return { kind: "start", name: hello.name, ...rest };
    }
    return received.length - begin >= MOST_HELLO_BYTES
      ? { kind: "invalid", reason: "it is longer than 16 KiB" }
      : begin + hello.atLeast;
  });
}
