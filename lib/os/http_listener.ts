/**
 * Sockets that answer HTTP/1, with limits for all resources of clients.
 *
 * Deno.serve is not used: it has no limit of connections, and no timeout for idle clients, for
 * incomplete requests or for unread responses. When files run out, its loop ends the process by an
 * error that cannot be caught (seen with 2.9.6).
 *
 * @module
 */
import type { Logger } from "../log/logger.ts";
import { type IpAddress, tryParseIpAddress } from "../net/ip_address.ts";
import { socketBackoff } from "./backoff.ts";
import type { Clock, Timer } from "./clock.ts";
import {
  HttpConnection,
  type HttpHandler,
  type HttpSocket,
  type HttpTimes,
} from "./http_connection.ts";
import { STATUS_TEXT } from "./http_head.ts";
import { SERVER_NAME } from "./http_output.ts";
import type { SocketAddress } from "./network.ts";
import { TurnShare } from "./turn_share.ts";
import { isClientGone, isOutOfSockets, OUT_OF_SOCKETS_CURE } from "./socket_errors.ts";

/** A listening socket, TCP or Unix. */
export interface HttpAcceptor {
  accept(): Promise<HttpSocket & { readonly remoteAddr: unknown }>;
  close(): void;
}

/** A socket that answers. */
export interface HttpListener {
  /** Resolves once the socket and its connections are closed, for any reason. */
  readonly finished: Promise<void>;
  /**
   * Closes the socket and its connections. The port is free once this has resolved, not before: the
   * kernel still refuses it in the same turn.
   */
  close(): Promise<void>;
}

/** Limits of a server. */
export interface HttpBounds {
  readonly connections: number;
  /** Maximum for one client address. Clients of Unix sockets have no address. */
  readonly connectionsOfClient: number;
}

/** Settings of {@linkcode HttpConnections}. */
export interface HttpConnectionsOptions {
  /** For the log: `healthz`, `metrics`. */
  readonly name: string;
  /** @default {256 connections, 64 of one client} */
  readonly bounds?: HttpBounds;
  readonly times?: Partial<HttpTimes>;
  /** Called for each connection that was refused, or closed for a new one. */
  readonly onRefused?: () => void;
}

/** Dependencies of {@linkcode HttpConnections}. */
interface HttpDependencies {
  readonly clock: Clock;
  /** Logs errors of handlers, whose clients get 500, and refused connections. */
  readonly logger: Logger;
}

const BOUNDS: HttpBounds = { connections: 256, connectionsOfClient: 64 };
/** Requests, and pieces of answers, of about 0.1 ms each. */
const REQUESTS_PER_TURN = 2;
/**
 * The kernel's queue has no order of clients: a new client waits until all connections before it are
 * accepted, which takes 0.02 ms each.
 */
const ACCEPTS_PER_TURN = 32;
/** For this time after a refusal, a connection is closed after its response. */
const CROWDED_MS = 1000;
/** A timer that fires this late was blocked. */
const STALL_MS = 500;
const NO_CONNECTIONS: ReadonlySet<HttpConnection> = new Set();
const BUSY = `HTTP/1.1 503 ${STATUS_TEXT[503]}\r\nserver: ${SERVER_NAME}\r\nretry-after: 1\r\n` +
  "content-length: 0\r\nconnection: close\r\n\r\n";
const TIMES: HttpTimes = {
  requestMs: 10_000,
  idleMs: 75_000,
  answerMs: 15_000,
  pieceMs: 30_000,
};

/**
 * The connections of one server, whatever the number of its sockets. At a limit, the connection
 * that has waited longest for a request is closed: that is always safe, because no response is
 * lost. If the new client has fewer connections, one of the client with the most is closed first.
 * A client never takes the connection of one that has fewer. Clients are answered in turns, so a
 * load balancer's health check waits for one answer to each other client at most.
 */
export class HttpConnections {
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #options: HttpConnectionsOptions;
  readonly #bounds: HttpBounds;
  readonly #times: HttpTimes;
  readonly #turns: TurnShare;
  /** Separate: otherwise accepted clients would delay those that wait. */
  readonly #accepts: TurnShare;
  readonly #open = new Set<HttpConnection>();
  /** The same by client; an address without connections has no entry. */
  readonly #clients = new Map<IpAddress | undefined, Set<HttpConnection>>();
  /** Until then, other clients are assumed to wait for a connection. */
  #crowdedUntil = 0;
  #timer: Timer | undefined;
  #timerAt = Infinity;

  constructor({ clock, logger }: HttpDependencies, options: HttpConnectionsOptions) {
    this.#clock = clock;
    this.#logger = logger.with({ server: options.name });
    this.#options = options;
    this.#turns = new TurnShare({ clock }, REQUESTS_PER_TURN);
    this.#accepts = new TurnShare({ clock }, ACCEPTS_PER_TURN);
    this.#bounds = options.bounds ?? BOUNDS;
    this.#times = { ...TIMES, ...options.times };
  }

  /** Answers the requests of a listening socket, which is closed in the end. */
  serve(acceptor: HttpAcceptor, handler: HttpHandler): HttpListener {
    const own = new Set<HttpConnection>();
    const backOff = socketBackoff();
    let isClosed = false;
    const accept = async () => {
      while (!isClosed) {
        try {
          const socket = await acceptor.accept();
          await this.#accepts.take();
          if (isClosed) socket.close();
          else this.#take(socket, handler, own);
        } catch (error) {
          if (isClosed || isClientGone(error)) continue;
          if (error instanceof Deno.errors.BadResource) break;
          // No file is left: the client waits in the kernel's queue, and idle connections are
          // closed.
          const cure = isOutOfSockets(error) ? OUT_OF_SOCKETS_CURE : undefined;
          this.#logger.warn("Cannot accept a connection", { error, ...(cure && { cure }) });
          this.#closeLongestWaiting(this.#open);
          await backOff.pause(this.#clock);
        }
      }
      for (const connection of own) connection.close();
      await Promise.all([...own].map(({ finished }) => finished));
      await Promise.all([this.#turns.ended(), this.#accepts.ended()]);
    };
    const finished = accept();
    return {
      finished,
      close() {
        if (!isClosed) acceptor.close();
        isClosed = true;
        backOff.cancel();
        for (const connection of own) connection.close();
        return finished;
      },
    };
  }

  #take(
    socket: HttpSocket & { readonly remoteAddr: unknown },
    handler: HttpHandler,
    own: Set<HttpConnection>,
  ): void {
    const peer = peerOf(socket.remoteAddr);
    if (!this.#hasRoom(peer)) return void refuse(socket);
    const onError = (error: unknown) => this.#logger.error("Cannot answer a request", { error });
    const context = {
      ...{ clock: this.#clock, times: this.#times, turns: this.#turns },
      ...{ handler, onError },
      isCrowded: (peer: IpAddress | undefined) =>
        this.#clock.now() < this.#crowdedUntil && this.#isFull(peer),
    };
    const connection = new HttpConnection(context, { socket, peer });
    own.add(connection);
    this.#open.add(connection);
    this.#clients.set(peer, (this.#clients.get(peer) ?? new Set()).add(connection));
    void connection.finished.then(() => {
      own.delete(connection);
      this.#forget(connection);
      if (this.#open.size === 0) this.#disarm();
    });
    this.#arm(connection.deadline);
  }

  #isFull(peer: IpAddress | undefined): boolean {
    const { connections, connectionsOfClient } = this.#bounds;
    return this.#open.size >= connections || this.#ofClient(peer).size >= connectionsOfClient;
  }

  #ofClient(peer: IpAddress | undefined): ReadonlySet<HttpConnection> {
    return (peer === undefined ? undefined : this.#clients.get(peer)) ?? NO_CONNECTIONS;
  }

  #hasRoom(peer: IpAddress | undefined): boolean {
    if (!this.#isFull(peer)) return true;
    this.#crowdedUntil = this.#clock.now() + CROWDED_MS;
    this.#options.onRefused?.();
    this.#logger.warn("Refused a connection: the limit of the server is reached", {
      ...this.#bounds,
    });
    const own = this.#ofClient(peer);
    if (own.size >= this.#bounds.connectionsOfClient) return this.#closeLongestWaiting(own);
    const most = peer === undefined ? NO_CONNECTIONS : this.#ofLargestClient();
    if (most.size > own.size + 1 && this.#closeQueued(most)) return true;
    return this.#closeLongestWaiting(this.#ofClientsWith(own.size));
  }

  /** Without clients that have fewer: several that ask for much would take their only connection. */
  *#ofClientsWith(least: number): Generator<HttpConnection> {
    for (const client of this.#clients.values()) if (client.size >= least) yield* client;
  }

  #ofLargestClient(): ReadonlySet<HttpConnection> {
    let most = NO_CONNECTIONS;
    for (const client of this.#clients.values()) if (client.size > most.size) most = client;
    return most;
  }

  /** For a client with fewer connections, a queued request is closed as well. */
  #closeQueued(candidates: ReadonlySet<HttpConnection>): boolean {
    if (this.#closeLongestWaiting(candidates)) return true;
    const queued = candidates.values().find(({ isQueued }) => isQueued);
    if (queued) this.#close(queued);
    return queued !== undefined;
  }

  /** Returns whether one was closed. */
  #closeLongestWaiting(candidates: Iterable<HttpConnection>): boolean {
    let longest: HttpConnection | undefined;
    for (const connection of candidates) {
      const { waitingSince = Infinity } = connection;
      if (waitingSince < (longest?.waitingSince ?? Infinity)) longest = connection;
    }
    if (longest) this.#close(longest);
    return longest !== undefined;
  }

  #close(connection: HttpConnection): void {
    connection.close();
    this.#forget(connection);
  }

  #forget(connection: HttpConnection): void {
    this.#open.delete(connection);
    const { peer } = connection;
    const client = this.#clients.get(peer);
    client?.delete(connection);
    if (client?.size === 0) this.#clients.delete(peer);
  }

  /** One timer for all, so that an idle server has next to no wake-ups. */
  #arm(at: number): void {
    if (at >= this.#timerAt) return;
    this.#disarm();
    this.#timerAt = at;
    const ms = Math.max(1, Math.ceil(at - this.#clock.now()));
    this.#timer = this.#clock.setTimer(ms, () => this.#expire());
  }

  #disarm(): void {
    this.#timer?.cancel();
    this.#timerAt = Infinity;
  }

  #expire(): void {
    const now = this.#clock.now();
    const isLate = now - this.#timerAt > STALL_MS;
    this.#disarm();
    // After a stall of the event loop, arrived data is read first.
    if (isLate) return this.#arm(now + STALL_MS);
    for (const connection of this.#open) if (connection.deadline <= now) connection.expire();
    let next = Infinity;
    for (const { deadline } of this.#open) next = Math.min(next, deadline);
    // A connection in a response may get a deadline at any time.
    if (this.#open.size > 0) this.#arm(Math.min(next, now + this.#times.requestMs));
  }
}

/** Refuses a connection because all others are busy. The client may have disconnected. */
async function refuse(socket: HttpSocket): Promise<void> {
  await socket.write(new TextEncoder().encode(BUSY)).catch(() => {});
  socket.close();
}

function peerOf(address: unknown): IpAddress | undefined {
  const { hostname } = address as Partial<SocketAddress>;
  return hostname === undefined ? undefined : tryParseIpAddress(hostname);
}
