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
import type { Clock } from "./clock.ts";
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

const BOUNDS: HttpBounds = { connections: 256, connectionsOfClient: 64 };
/** Requests of about 0.1 ms each. */
const REQUESTS_PER_TURN = 2;
/** Accepting takes 0.02 ms. */
const ACCEPTS_PER_TURN = 32;
const BUSY = `HTTP/1.1 503 ${STATUS_TEXT[503]}\r\nserver: ${SERVER_NAME}\r\nretry-after: 1\r\n` +
  "content-length: 0\r\nconnection: close\r\n\r\n";
const TIMES: HttpTimes = { requestMs: 10_000, idleMs: 75_000, answerMs: 15_000, pieceMs: 30_000 };

/**
 * The connections of one server, whatever the number of its sockets. At a limit, the connection that
 * has waited longest for a request is closed, which loses no response: at that of a client, it is one of
 * this client. If there is none, the new one is refused.
 */
export class HttpConnections {
  readonly #clock: Clock;
  /** Logs errors of handlers, whose clients get 500, and refused connections. */
  readonly #logger: Logger;
  readonly #options: HttpConnectionsOptions;
  readonly #turns: TurnShare;
  /** Separate: otherwise accepted clients would delay those that wait. */
  readonly #accepts: TurnShare;
  readonly #open = new Set<HttpConnection>();

  constructor(
    { clock, logger }: { readonly clock: Clock; readonly logger: Logger },
    options: HttpConnectionsOptions,
  ) {
    this.#clock = clock;
    this.#logger = logger.with({ server: options.name });
    this.#options = options;
    this.#turns = new TurnShare({ clock }, REQUESTS_PER_TURN);
    this.#accepts = new TurnShare({ clock }, ACCEPTS_PER_TURN);
  }

  /** Answers the requests of a listening socket, which is closed in the end. */
  serve(acceptor: HttpAcceptor, handler: HttpHandler): HttpListener {
    const own = new Set<HttpConnection>();
    const backoff = socketBackoff();
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
          closeLongestWaiting(this.#open);
          await backoff.pause(this.#clock);
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
        backoff.cancel();
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
    const connection = new HttpConnection(socket, peer, handler, {
      clock: this.#clock,
      times: { ...TIMES, ...this.#options.times },
      turns: this.#turns,
      onError: (error) => this.#logger.error("Cannot answer a request", { error }),
    });
    for (const set of [own, this.#open]) set.add(connection);
    void connection.finished.then(() => {
      for (const set of [own, this.#open]) set.delete(connection);
    });
  }

  #hasRoom(peer: IpAddress | undefined): boolean {
    const { bounds = BOUNDS, onRefused } = this.#options;
    const open = [...this.#open].filter(({ isClosed }) => !isClosed);
    const own = peer === undefined ? [] : open.filter((each) => each.peer === peer);
    const isOfClient = own.length >= bounds.connectionsOfClient;
    if (!isOfClient && open.length < bounds.connections) return true;
    onRefused?.();
    this.#logger.warn("Refused a connection: the limit of the server is reached", { ...bounds });
    return closeLongestWaiting(isOfClient ? own : open);
  }
}

/** Returns whether one was closed. */
function closeLongestWaiting(candidates: Iterable<HttpConnection>): boolean {
  let longest: HttpConnection | undefined;
  for (const connection of candidates) {
    const { waitingSince = Infinity } = connection;
    if (waitingSince < (longest?.waitingSince ?? Infinity)) longest = connection;
  }
  longest?.close();
  return longest !== undefined;
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
