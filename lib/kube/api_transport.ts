/**
 * Requests to one API server, over HTTP/2 with TLS or plain HTTP/1.1: abortable, with bodies in pieces,
 * and with pings that detect a frozen server or a path that drops packets. TCP alone would need a
 * quarter of an hour for that.
 *
 * @module
 */
import { messageOf } from "../log/message_of.ts";
import type { Clock, Timer } from "../os/clock.ts";
import { http2Wire } from "./http2_wire.ts";
import type { KubeAuth, TlsMaterial } from "./kube_auth.ts";
import { LinkedAbort } from "./linked_abort.ts";
import {
  type HttpRequest,
  type HttpResponse,
  type HttpTransport,
  TransportError,
  type Wire,
} from "./transport.ts";

const DEFAULTS = {
  /** Limit for connecting, including TLS. */
  connectTimeoutMs: 10_000,
  /** Limit for the headers of an answer. */
  responseTimeoutMs: 60_000,
  /** The server is pinged after this time without a byte. */
  pingAfterMs: 30_000,
  /** Limit for the answer to a ping. */
  pingTimeoutMs: 15_000,
};

/** Time limits of a transport that differ from the usual ones. */
export type TransportTiming = Partial<Readonly<typeof DEFAULTS>>;

/**
 * Connects to the server of `auth` at the first request. Sends everything over one connection, which is
 * replaced when it breaks, freezes, is ended by the server, or when the client certificate changed.
 * `onConnected` is called for each new connection, with the server's address if it is known.
 */
export function openTransport(
  clock: Clock,
  auth: KubeAuth,
  timing: TransportTiming = {},
  onConnected: (peer: string | undefined) => void = () => {},
): HttpTransport {
  return new Transport(clock, auth, { ...DEFAULTS, ...timing }, onConnected);
}

class Transport implements HttpTransport {
  readonly origin: string;
  lastSignOfLifeMs: number | undefined;
  /** Every open connection; former ones stay until their last watch is done. */
  readonly #connections = new Set<Connection>();
  #current: Connection | undefined;
  #connecting: Promise<Connection> | undefined;
  #disposed = false;

  constructor(
    readonly clock: Clock,
    private readonly auth: KubeAuth,
    readonly timing: typeof DEFAULTS,
    private readonly onConnected: (peer: string | undefined) => void,
  ) {
    this.origin = new URL(auth.server).origin;
  }

  get connected(): boolean {
    return this.#current !== undefined && this.#current.isUsable &&
      (this.#current.peer !== undefined || this.#current.isAnswering);
  }

  async request(request: HttpRequest): Promise<HttpResponse> {
    request.signal.throwIfAborted();
    // It may be retired before the wait for it ends: another request saw a new certificate.
    let connection = await abortable(this.#usable(), request.signal);
    if (!connection.isUsable) connection = await abortable(this.#usable(), request.signal);
    return await connection.request(request);
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.#disposed = true;
    const reason = new TransportError("closed", `Closed ${this.origin}: kube-relay stops`);
    for (const connection of this.#connections) connection.destroy(reason);
    return Promise.resolve();
  }

  async #usable(): Promise<Connection> {
    const isPlain = this.origin.startsWith("http:");
    const tls = isPlain ? undefined : await this.auth.tls();
    const current = this.#current;
    if (current?.isUsable && current.tls === tls) return current;
    // Watches stay on the connection of the former certificate until the server ends them.
    current?.retire();
    this.#connecting ??= this.#connect(tls).finally(() => this.#connecting = undefined);
    return await this.#connecting;
  }

  async #connect(tls: TlsMaterial | undefined): Promise<Connection> {
    if (this.#disposed) throw new TransportError("closed", `Closed ${this.origin}`);
    for (const former of this.#connections) if (former.isClosed) this.#connections.delete(former);
    const connection = new Connection(this, tls);
    this.#connections.add(connection);
    await connection.open();
    this.#current = connection;
    this.onConnected(connection.peer);
    return connection;
  }
}

/** One connection, of HTTP/2, or the requests over HTTP/1.1 of which each has a connection. */
class Connection {
  readonly #wire: Wire;
  readonly #requests = new Set<LinkedAbort>();
  #failure: TransportError | undefined;
  #isRetired = false;
  #lastSignOfLife: number | undefined;
  #timer: Timer | undefined;
  readonly #ended = new AbortController();

  constructor(private readonly transport: Transport, readonly tls: TlsMaterial | undefined) {
    const { clock, origin } = transport;
    this.#wire = tls === undefined
      ? http1Wire(origin)
      : http2Wire(clock, origin, tls, () => this.retire(), (reason) => this.destroy(reason));
  }

  /** Whether it accepts new requests. */
  get isUsable(): boolean {
    return !this.#isRetired && this.#failure === undefined && this.#wire.isOpen;
  }

  get isClosed(): boolean {
    return !this.#wire.isOpen;
  }

  /** Whether the server has answered and a request is open. */
  get isAnswering(): boolean {
    return this.#requests.size > 0 && this.#lastSignOfLife !== undefined;
  }

  /** The server's address, if it is known. */
  get peer(): string | undefined {
    return this.#wire.peer;
  }

  async open(): Promise<void> {
    const { connectTimeoutMs } = this.transport.timing;
    const timer = this.transport.clock.setTimer(connectTimeoutMs, () => {
      const text = `no answer within ${connectTimeoutMs} ms; is the address right, and is no ` +
        "firewall in between?";
      this.destroy(
        new TransportError("connect", `Cannot connect to ${this.transport.origin}: ${text}`),
      );
    });
    try {
      await this.#wire.open();
      if (this.#wire.peer !== undefined) this.#noteSignOfLife();
    } catch (error) {
      throw this.#failure ?? error;
    } finally {
      timer.cancel();
    }
  }

  /** Sends one request. Throws a {@linkcode TransportError} or the signal's reason. */
  async request(request: HttpRequest): Promise<HttpResponse> {
    const { responseTimeoutMs } = this.transport.timing;
    const call = new LinkedAbort(request.signal);
    const timer = this.transport.clock.setTimer(responseTimeoutMs, () => {
      const text = `no answer within ${responseTimeoutMs} ms`;
      const message = `Cannot get an answer of ${this.transport.origin}: ${text}`;
      call.abort(new TransportError("frozen", message));
    });
    this.#requests.add(call);
    try {
      if (!this.isUsable) throw this.#failure ?? new Error("the connection was ended");
      this.#armPing();
      const sent = this.#wire.send({ ...request, signal: call.signal });
      const response = await abortable(sent, call.signal);
      this.#noteSignOfLife();
      return { ...response, body: this.#body(response, call) };
    } catch (error) {
      throw this.#end(call, error);
    } finally {
      timer.cancel();
    }
  }

  /** Accepts no more requests; ends when the open ones are done. */
  retire(): void {
    this.#isRetired = true;
    if (this.#requests.size === 0) this.#wire.close();
  }

  /** Ends all requests at once. */
  destroy(reason: TransportError): void {
    this.#failure ??= reason;
    this.#ended.abort();
    this.#timer?.cancel();
    for (const call of this.#requests) call.abort(this.#failure);
    this.#wire.close();
  }

  async *#body({ body }: HttpResponse, call: LinkedAbort): AsyncGenerator<Uint8Array, undefined> {
    try {
      for await (const chunk of body) {
        call.signal.throwIfAborted();
        this.#noteSignOfLife();
        yield chunk;
      }
      // A request that was ended may look complete.
      call.signal.throwIfAborted();
      return undefined;
    } catch (error) {
      throw this.#end(call, error);
    } finally {
      this.#end(call);
    }
  }

  /** Forgets a request; returns what to throw for its error. */
  #end(call: LinkedAbort, error?: unknown): unknown {
    const { aborted, reason } = call.signal;
    // The wire frees what belongs to the request.
    call.abort(
      new TransportError("closed", `Closed ${this.transport.origin}: the request has ended`),
    );
    call[Symbol.dispose]();
    this.#requests.delete(call);
    if (this.#requests.size === 0) {
      this.#timer?.cancel();
      this.#timer = undefined;
      if (this.#isRetired) this.#wire.close();
    }
    if (aborted) return reason;
    if (error instanceof TransportError) return error;
    return this.#failure ??
      new TransportError("closed", `Lost ${this.transport.origin}: ${messageOf(error)}`, {
        cause: error,
      });
  }

  #noteSignOfLife(): void {
    this.#lastSignOfLife = this.transport.lastSignOfLifeMs = this.transport.clock.now();
  }

  /** Pings after a silence, while requests are open. */
  #armPing(): void {
    if (this.#timer !== undefined) return;
    const silence = this.transport.clock.now() -
      (this.#lastSignOfLife ?? this.transport.clock.now());
    // Rounded up: a fraction that is lost in the sum with the time would be waited for again and again.
    const waitMs = Math.max(0, Math.ceil(this.transport.timing.pingAfterMs - silence));
    this.#timer = this.transport.clock.setTimer(waitMs, () => {
      this.#timer = undefined;
      const silence = this.transport.clock.now() - (this.#lastSignOfLife ?? -Infinity);
      if (silence < this.transport.timing.pingAfterMs) this.#armPing();
      else this.#ping();
    });
  }

  #ping(): void {
    const askedAt = this.transport.clock.now();
    // Any received data counts, not only the answer, which may be queued behind megabytes of a list.
    const isAlive = () => (this.#lastSignOfLife ?? -Infinity) > askedAt;
    const lost = () => {
      const silent = Math.round(this.transport.clock.now() - (this.#lastSignOfLife ?? askedAt));
      const text = `Lost ${this.transport.origin}: no sign of life for ${silent} ms`;
      this.destroy(new TransportError("frozen", text));
    };
    const timer = this.#timer = this.transport.clock.setTimer(
      this.transport.timing.pingTimeoutMs,
      () => {
        this.#timer = undefined;
        if (isAlive()) this.#armPing();
        else lost();
      },
    );
    this.#wire.ping(this.#ended.signal).then(() => {
      this.#noteSignOfLife();
      if (this.#timer !== timer) return;
      timer.cancel();
      this.#timer = undefined;
      this.#armPing();
    }, () => this.#timer === timer && lost());
  }
}

/**
 * Stops waiting for the promise when the signal is aborted. Its work continues for other callers.
 */
function abortable<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const onAbort = () => reject(signal.reason);
    signal.addEventListener("abort", onAbort, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", onAbort));
    if (signal.aborted) onAbort();
  });
}

/**
 * Requests to a plain `http://` server, such as `kubectl proxy` or the insecure port of a test API
 * server: HTTP/1.1, because neither supports HTTP/2 without TLS, with one connection per request.
 */
function http1Wire(origin: string): Wire {
  // No pool of idle connections: it would return a broken one again and again.
  const client = Deno.createHttpClient({ poolMaxIdlePerHost: 0, http2: false });
  let isOpen = true;
  const send = async (request: HttpRequest): Promise<HttpResponse> => {
    const { path, signal, ...rest } = request;
    const response = await fetch(origin + path, { ...rest, client, signal, redirect: "error" })
      .catch((error: unknown) => {
        if (signal.aborted) throw signal.reason;
        const message = `Cannot connect to ${origin}: ${messageOf(error)}`;
        throw new TransportError("connect", message, { cause: error });
      });
    const reader = response.body?.getReader();
    // Deno 2.9 loses the signal's way to the body when the response is no longer referenced.
    const cancel = () => void reader?.cancel().catch(() => {});
    signal.addEventListener("abort", cancel, { once: true });
    return {
      status: response.status,
      contentType: response.headers.get("content-type") ?? undefined,
      retryAfter: response.headers.get("retry-after") ?? undefined,
      body: (async function* (): AsyncGenerator<Uint8Array, undefined> {
        for (let read = await reader?.read(); read?.value; read = await reader?.read()) {
          yield read.value;
        }
        return undefined;
      })(),
    };
  };
  return {
    open: () => Promise.resolve(),
    get isOpen() {
      return isOpen;
    },
    peer: undefined,
    send,
    // HTTP/1.1 has no ping: a small request over a connection of its own replaces it.
    async ping(signal) {
      using call = new LinkedAbort(signal);
      await send({ method: "GET", path: "/version", headers: {}, signal: call.signal });
      call.abort(new Error("nothing else is needed"));
    },
    close() {
      if (isOpen) client.close();
      isOpen = false;
    },
  };
}
