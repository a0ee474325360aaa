import type { LogFields } from "../../lib/log/logger.ts";
import type { Timer } from "../../lib/os/clock.ts";
import { isOutOfSockets, OUT_OF_SOCKETS_CURE, systemErrorOf } from "../../lib/os/socket_errors.ts";
import { forEachInSlices } from "../../lib/os/time_slice.ts";
import type { ServiceKey, ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import type { Forwarding } from "./forwarding.ts";

type SocketRoomContext = Pick<Forwarding, "clock" | "log" | "openFiles" | "options">;

/** A forwarder that can be asked to close connections. */
interface ConnectionCloser {
  readonly key: ServicePortKey;
  /** Connections that are open now. */
  readonly connections: number;
  /** Closes up to `count` that are silent for long, and returns how many. @default {silentMs of the options} */
  closeSilent(count: number, silentMs?: number): number;
  /** Connections without data since then. */
  silentSince(before: number): Iterable<{ closeIfGone(): Promise<void> }>;
  /** Closes all. */
  close(): void;
}

/** Sockets of a TCP connection: to the client and to the endpoint. */
const SOCKETS = 2;
/** A connection that was silent for this time is closed when other Services have no files left. */
const HOARDED_MS = 10_000;
/** Once in so long, silent connections are closed of which one side is gone: nothing else notices it. */
const GONE_MS = 3_600_000;

/** Makes room for new sockets, at a bound: TCP connections that are silent for long are closed. */
export class SocketRoom {
  readonly #busy = new Set<ConnectionCloser>();
  readonly #context: SocketRoomContext;
  #timer: Timer | undefined;

  constructor(context: SocketRoomContext) {
    this.#context = context;
  }

  /** Forwarders that have open connections. */
  get busy(): ReadonlySet<ConnectionCloser> {
    return this.#busy;
  }

  /** A forwarder has connections. */
  enter(forwarder: ConnectionCloser): void {
    this.#busy.add(forwarder);
    this.#timer ??= this.#context.clock.setTimer(GONE_MS, () => this.#closeGone());
  }

  /** A forwarder has no connection any more. */
  leave(forwarder: ConnectionCloser): void {
    this.#busy.delete(forwarder);
    if (this.#busy.size > 0) return;
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  /** Counts the sockets of one connection besides `open` others, unless a bound forbids it. */
  take(
    forwarder: ConnectionCloser,
    { service, open }: { readonly service: ServiceKey; readonly open: number },
  ): boolean {
    const { log, options: { maxConnectionsPerService: bound } } = this.#context;
    if (open < bound) return this.#takeSockets(forwarder, service);
    const servicePort = forwarder.key;
    if (forwarder.closeSilent(1) === 1) {
      log.warn("Closed an idle connection for a new one", { servicePort, bound });
      return this.#takeSockets(forwarder, service);
    }
    log.warn("Refused a connection: the limit of the Service is reached", { servicePort, bound });
    return false;
  }

  #closeGone(): void {
    const { clock } = this.#context;
    this.#timer = clock.setTimer(GONE_MS, () => this.#closeGone());
    const before = clock.now() - GONE_MS;
    const silent = [...this.#busy].flatMap((forwarder) => [...forwarder.silentSince(before)]);
    void forEachInSlices(clock, silent, (session) => void session.closeIfGone());
  }

  #takeSockets(forwarder: ConnectionCloser, service: ServiceKey): boolean {
    const { openFiles } = this.#context;
    if (openFiles.takeTraffic(service, SOCKETS)) return true;
    if (forwarder.closeSilent(1) === 0) this.relieve(1);
    if (openFiles.takeTraffic(service, SOCKETS)) return true;
    const isExchange = this.#closeOfLargest(forwarder.connections);
    if (isExchange && openFiles.takeTraffic(service, SOCKETS, { isExchange })) return true;
    openFiles.countRefused("connection");
    this.reportFull("Refused a connection: too few open files remain", forwarder.key);
    return false;
  }

  /** The sockets of a connection are closed. */
  give(service: ServiceKey): void {
    this.#context.openFiles.giveTraffic(service, SOCKETS);
  }

  /** Closes up to `count` connections that are silent for long, whosever they are. */
  relieve(count: number): void {
    let left = count;
    for (const forwarder of this.#busy) {
      if (left <= 0) return;
      left -= forwarder.closeSilent(left);
    }
  }

  /** Logs an error of a socket. Where none is left, `relief` silent connections are closed. */
  reportError(
    message: string,
    { error, relief, ...fields }: LogFields & { readonly error: unknown; readonly relief: number },
  ): void {
    const isFull = isOutOfSockets(error);
    if (isFull) this.relieve(relief);
    this.#context.log.warn(message, {
      ...{ ...fields, error: systemErrorOf(error) ?? error },
      ...(isFull && { cure: OUT_OF_SOCKETS_CURE }),
    });
  }

  reportFull(message: string, servicePort: ServicePortKey): void {
    const { log, openFiles: { limit } } = this.#context;
    log.warn(message, { servicePort, limit, cure: OUT_OF_SOCKETS_CURE });
  }

  /**
   * Closes a connection in favour of a ServicePort that has `own`: the connection that has been
   * silent longest, of the ServicePort with the most. Returns whether it found one; a ServicePort
   * with fewer, or only busy connections, loses none.
   */
  #closeOfLargest(own: number): boolean {
    let largest: ConnectionCloser | undefined;
    for (const forwarder of this.#busy) {
      if (forwarder.connections > (largest?.connections ?? own + 1)) largest = forwarder;
    }
    return largest?.closeSilent(1, HOARDED_MS) === 1;
  }
}
