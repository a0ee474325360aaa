/**
 * Servers of HTTP/1, with limits for all resources of clients.
 *
 * Deno.serve is not used: it has no limit of connections, and no timeout for idle clients, for
 * incomplete requests or for unread responses. When files run out, its loop ends the process by an
 * error that cannot be caught (seen with 2.9.6).
 *
 * @module
 */
import type { Logger } from "../log/logger.ts";
import { messageOf } from "../log/message_of.ts";
import { type IpAddress, isUnspecified, tryParseIpAddress } from "../net/ip_address.ts";
import { socketBackoff } from "./backoff.ts";
import type { Clock } from "./clock.ts";
import {
  HttpConnection,
  type HttpHandler,
  type HttpSocket,
  type HttpTimes,
  SERVER_NAME,
} from "./http_connection.ts";
import { STATUS_TEXT } from "./http_head.ts";
import { type Network, type SocketAddress, systemNetwork, type TcpListener } from "./network.ts";
import { isClientGone, isOutOfSockets, OUT_OF_SOCKETS_CURE } from "./socket_errors.ts";
import { TurnShare } from "./turn_share.ts";
import { probeWildcard, wildcardHostnames } from "./wildcard.ts";

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
  /** For the log: `health`, `metrics`. */
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
  readonly #turns: TurnShare;
  /** Separate: otherwise accepted clients would delay those that wait. */
  readonly #accepts: TurnShare;
  readonly #open = new Set<HttpConnection>();

  constructor(
    { clock, logger }: { readonly clock: Clock; readonly logger: Logger },
    private readonly options: HttpConnectionsOptions,
  ) {
    this.#clock = clock;
    this.#logger = logger.with({ server: options.name });
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
    const { hostname } = socket.remoteAddr as Partial<SocketAddress>;
    const peer = hostname === undefined ? undefined : tryParseIpAddress(hostname);
    if (!this.#hasRoom(peer)) {
      // The client may have disconnected.
      const refused = socket.write(new TextEncoder().encode(BUSY)).catch(() => {});
      return void refused.then(() => socket.close());
    }
    const connection = new HttpConnection(socket, peer, handler, {
      clock: this.#clock,
      times: { ...TIMES, ...this.options.times },
      turns: this.#turns,
      onError: (error) => this.#logger.error("Cannot answer a request", { error }),
    });
    own.add(connection);
    this.#open.add(connection);
    void connection.finished.then(() => {
      own.delete(connection);
      this.#open.delete(connection);
    });
  }

  #hasRoom(peer: IpAddress | undefined): boolean {
    const { bounds = BOUNDS, onRefused } = this.options;
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

/** Time between two attempts to bind. */
const RETRY_MS = 5000;
/** The same in a handover: probes at an interval of half a second miss at most one answer. */
export const HANDOVER_RETRY_MS = 100;

/** Another program has the addresses of this one and is about to end. */
export interface AddressHandover {
  /** Whether the other program may still have the addresses. */
  readonly pending: boolean;
}

/**
 * Serves until the signal is aborted. An unspecified address, of either family, means every address of
 * both, as in Go. An address in use is logged once and retried every 5 s, as is a server that stops by
 * itself; with `hardFail` either rejects. If a handover is pending at the start, the address is tried
 * every 100 ms; while it is pending, an address in use is no error. Resolves when the sockets are closed.
 */
export async function runHttpServer(
  { clock, logger, network = systemNetwork }: {
    readonly clock: Clock;
    readonly logger: Logger;
    /** Determines the sockets for every address. @default {systemNetwork} */
    readonly network?: Pick<Network, "listenTcp">;
  },
  options: Omit<HttpConnectionsOptions, "times"> & {
    readonly address: SocketAddress;
    readonly handler: HttpHandler;
    readonly hardFail?: boolean;
    readonly handover?: AddressHandover;
    readonly signal: AbortSignal;
  },
): Promise<void> {
  const { name, address, hardFail = false, handover, signal } = options;
  const retryMs = handover?.pending ? HANDOVER_RETRY_MS : RETRY_MS;
  const connections = new HttpConnections({ clock, logger }, options);
  let logged: "wait" | "error" | undefined;
  while (!signal.aborted) {
    try {
      const sockets = openAll(address, network);
      const listens = { server: name, ...sockets[0]?.addr };
      // A reader of the earlier error waits for this line.
      if (logged) logger.info("Server listens", listens);
      else logger.verbose(1, "Server listens", listens);
      logged = undefined;
      const listeners = sockets.map((socket) => connections.serve(socket, options.handler));
      const closeAll = () => Promise.all(listeners.map((listener) => listener.close()));
      const onAbort = () => void closeAll();
      signal.addEventListener("abort", onAbort, { once: true });
      await Promise.race(listeners.map(({ finished }) => finished));
      signal.removeEventListener("abort", onAbort);
      await closeAll();
      if (!signal.aborted) throw new Error("the server stopped unexpectedly");
    } catch (error) {
      const waits = error instanceof Deno.errors.AddrInUse && handover?.pending === true;
      if (hardFail && !waits) {
        const { hostname, port } = address;
        const message = `Cannot listen on ${hostname}:${port} for the ${name} server: `;
        throw new Error(message + messageOf(error), { cause: error });
      }
      const fields = { server: name, ...address, retryMs };
      if (waits && !logged) {
        logger.info("Waiting until another program releases the address", fields);
      }
      if (!waits && logged !== "error") {
        logger.error("Cannot listen; retrying", { ...fields, error });
      }
      logged = waits ? "wait" : "error";
      await clock.sleep(retryMs, signal).catch(() => {});
    }
  }
}

/** Called for each attempt, because IPv6 may come up later than this process. */
function openAll(
  { hostname, port }: SocketAddress,
  network: Pick<Network, "listenTcp">,
): readonly TcpListener[] {
  const address = tryParseIpAddress(hostname);
  const isWildcard = address !== undefined && isUnspecified(address);
  const hostnames = isWildcard ? wildcardHostnames(probeWildcard(network)) : [hostname];
  const sockets: TcpListener[] = [];
  try {
    for (const each of hostnames) {
      const taken = sockets[0]?.addr.port ?? port;
      sockets.push(systemNetwork.listenTcp({ hostname: each, port: taken }));
    }
    return sockets;
  } catch (error) {
    for (const socket of sockets) socket.close();
    throw error;
  }
}
