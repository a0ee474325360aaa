import type { LogFields, Logger } from "../../lib/log/logger.ts";
import type { Clock, Timer } from "../../lib/os/clock.ts";
import {
  type OpenFiles,
  type Shortage,
  SHORTAGE_CURES,
  type TrafficUse,
} from "../../lib/os/open_files.ts";
import { isOutOfPorts, isOutOfSockets, systemErrorOf } from "../../lib/os/socket_errors.ts";
import { forEachInSlices } from "../../lib/os/time_slice.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import type { SocketKey } from "./listeners.ts";

interface SocketRoomContext {
  readonly clock: Clock;
  readonly log: Pick<Logger, "warn">;
  readonly openFiles: OpenFiles;
  readonly options: {
    readonly maxConnectionsPerService: number;
    readonly maxFlowsPerService: number;
    readonly silentMs: number;
  };
}

/** A forwarder that can be asked to close connections or flows. */
interface ConnectionCloser {
  /** A ServicePort, or a socket that several share. */
  readonly key: ServicePortKey | SocketKey;
  /** Whose share of open files and ports it uses: a Service, or a socket. */
  readonly service: string;
  readonly use: Exclude<TrafficUse, "check">;
  /** Connections or flows that are open now. */
  readonly size: number;
  /** Whether a new one may be part of a circle, which ends with it. */
  mayCircle?(): boolean;
  /** Whether {@linkcode closeSilent} would close one. */
  hasSilent(silentMs: number): boolean;
  /** Closes up to `count` that are silent for long, and returns how many. @default {silentMs of the options} */
  closeSilent(count: number, silentMs?: number): number;
  /** Connections without data since then. A flow may end without a sign, and its time-out ends it. */
  silentConnections?(before: number): Iterable<{ closeIfGone(): Promise<void> }>;
  /** Closes all. */
  close(): void;
}

/** Messages by use. */
const CLOSED = {
  connection: "Closed an idle connection for a new one",
  flow: "Closed the longest idle flow for a new one",
} as const;
const REFUSED = {
  bound: "Refused a connection: the limit of the Service is reached",
  connection: "Refused a connection: too few open files remain",
  flow: "Refused a flow: too few open files or ports remain",
} as const;

/** A connection that was silent for this time is closed when other Services have no files left. */
const HOARDED_MS = 10_000;
/** A search among all forwarders is not repeated for so long: in a flood it would cost more than the flows. */
const SEARCH_MS = 5;
/** Once in so long, silent connections are closed of which one side is gone: nothing else notices it. */
const GONE_MS = 3_600_000;

/**
 * Makes room for new sockets, at a bound: TCP connections that are silent for long are closed, and UDP
 * flows that were unused for longest, whose clients open another one by their next datagram.
 */
export class SocketRoom {
  readonly #busy = new Set<ConnectionCloser>();
  readonly #context: SocketRoomContext;
  /** The last result for each forwarder, and the time until which it counts. */
  readonly #searches = new WeakMap<
    ConnectionCloser,
    { readonly of: Shortage; readonly largest: ConnectionCloser | undefined; readonly end: number }
  >();
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

  /**
   * Counts one connection or flow more, unless a bound forbids it. At a bound it takes the place of
   * another one: nothing is closed in vain, and no Service grows at the cost of a smaller one.
   */
  take(forwarder: ConnectionCloser): boolean {
    const { log, openFiles, options } = this.#context;
    const { key: servicePort, size, service, use } = forwarder;
    const bound = use === "flow" ? options.maxFlowsPerService : options.maxConnectionsPerService;
    const shortage = size < bound ? openFiles.takeTraffic(service, use) : "bound";
    if (shortage === undefined) return true;
    if (forwarder.mayCircle?.()) return false;
    const fields = shortage === "bound"
      ? { servicePort, bound }
      : { servicePort, limit: limitOf(openFiles, shortage), cure: SHORTAGE_CURES[shortage] };
    if (shortage !== "bound") openFiles.countRefused(use);
    if (this.#closeFor(forwarder, shortage)) {
      openFiles.exchangeTraffic(service, use);
      log.warn(CLOSED[use], fields);
      return true;
    }
    log.warn(REFUSED[shortage === "bound" ? shortage : use], fields);
    return false;
  }

  /** Closes a flow for one that got no port from the kernel; returns whether there was any. */
  closeForPort(forwarder: ConnectionCloser): boolean {
    return this.#closeFor(forwarder, "ports");
  }

  #closeGone(): void {
    const { clock } = this.#context;
    this.#timer = clock.setTimer(GONE_MS, () => this.#closeGone());
    const before = clock.now() - GONE_MS;
    const silent = [...this.#busy].flatMap((
      forwarder,
    ) => [...forwarder.silentConnections?.(before) ?? []]);
    void forEachInSlices(clock, silent, (session) => void session.closeIfGone());
  }

  /** The sockets of a connection or flow are closed. */
  give({ service, use }: Pick<ConnectionCloser, "service" | "use">): void {
    this.#context.openFiles.giveTraffic(service, use);
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
    const shortage = isOutOfSockets(error) ? "files" : isOutOfPorts(error) ? "ports" : undefined;
    if (shortage === "files") this.relieve(relief);
    this.#context.log.warn(message, {
      ...{ ...fields, error: systemErrorOf(error) ?? error },
      ...(shortage && { cure: SHORTAGE_CURES[shortage] }),
    });
  }

  /** Closes connections or flows in favour of a forwarder. Returns whether they leave enough. */
  #closeFor(forwarder: ConnectionCloser, shortage: Shortage | "bound"): boolean {
    const { silentMs } = this.#context.options;
    const isFlow = forwarder.use === "flow";
    const closeOwn = () => forwarder.closeSilent(1, isFlow ? 0 : silentMs) === 1;
    if (shortage === "bound") return closeOwn();
    // Of flows, a port with few would otherwise lose them to each other, and never get more.
    return isFlow
      ? this.#closeOfLargest(forwarder, shortage) || closeOwn()
      : closeOwn() || this.#closeOfLargest(forwarder, shortage);
  }

  #closeOfLargest(forwarder: ConnectionCloser, shortage: Shortage): boolean {
    const largest = this.#largestBesides(forwarder, shortage);
    if (largest === undefined) return false;
    const count = Math.ceil(sizeOf(forwarder.use) / sizeOf(largest.use));
    return largest.closeSilent(count, silenceOf(largest)) === count;
  }

  /**
   * The forwarder that has most of what is lacking, and something silent: of the same Service, or of
   * one that has more than this one.
   */
  #largestBesides(forwarder: ConnectionCloser, of: Shortage): ConnectionCloser | undefined {
    const now = this.#context.clock.now();
    const last = this.#searches.get(forwarder);
    if (last?.of === of && now < last.end) {
      const { largest } = last;
      if (largest === undefined || this.#mayClose(largest, forwarder, of)) return largest;
    }
    let largest: ConnectionCloser | undefined;
    for (const each of this.#busy) {
      if (filesOf(each) > filesOf(largest) && this.#mayClose(each, forwarder, of)) largest = each;
    }
    this.#searches.set(forwarder, { of, largest, end: now + SEARCH_MS });
    return largest;
  }

  /** Whether something of `each` is to end for a forwarder. */
  #mayClose(each: ConnectionCloser, forwarder: ConnectionCloser, of: Shortage): boolean {
    const { openFiles } = this.#context;
    const { service, use } = forwarder;
    if (of === "ports" && each.use !== "flow") return false;
    const [its, own] = each.service === service
      ? [filesOf(each), filesOf(forwarder)]
      : [openFiles.trafficOf(each.service, of), openFiles.trafficOf(service, of)];
    return its >= own + 2 * sizeOf(use) && each.hasSilent(silenceOf(each));
  }
}

/** Sockets of a connection, which are one to the client and one to the endpoint, or of a flow. */
function sizeOf(use: ConnectionCloser["use"]): number {
  return use === "flow" ? 1 : 2;
}

function filesOf(forwarder: ConnectionCloser | undefined): number {
  return forwarder === undefined ? 0 : forwarder.size * sizeOf(forwarder.use);
}

function silenceOf({ use }: ConnectionCloser): number {
  return use === "flow" ? 0 : HOARDED_MS;
}

function limitOf({ limit, ports }: Pick<OpenFiles, "limit" | "ports">, of: Shortage): number {
  return of === "files" ? limit : ports;
}
