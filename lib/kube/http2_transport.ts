/**
 * All requests and watches to an `https://` API server over one HTTP/2 connection. It is replaced
 * when it breaks, freezes, gets a GOAWAY, or when the client certificate changed.
 *
 * @module
 */
import type { Clock } from "../os/clock.ts";
import { Http2Session } from "./http2_session.ts";
import {
  completeTiming,
  type HttpRequest,
  type HttpResponse,
  type HttpTransport,
  TransportError,
  type TransportTiming,
} from "./http_transport.ts";
import type { KubeAuth } from "./kube_auth.ts";

/** Dependencies of {@linkcode Http2Transport}. */
interface Http2TransportDependencies {
  readonly clock: Clock;
  readonly auth: KubeAuth;
  /** Called for each new connection, with the server's address. @default {nothing} */
  readonly onConnected?: (peer: string | undefined) => void;
}

/** {@linkcode HttpTransport} over `node:http2`. Connects at the first request. */
export class Http2Transport implements HttpTransport {
  readonly #clock: Clock;
  readonly #auth: KubeAuth;
  readonly #onConnected: Http2TransportDependencies["onConnected"];
  readonly #origin: string;
  readonly #timing: Required<TransportTiming>;
  /** Every open session; former ones stay until their last watch is done. */
  readonly #sessions = new Set<Http2Session>();
  #current: Http2Session | undefined;
  #connecting: Promise<Http2Session> | undefined;
  #lastSignOfLife: number | undefined;
  #disposed = false;

  constructor(
    { clock, auth, onConnected }: Http2TransportDependencies,
    timing: TransportTiming = {},
  ) {
    this.#clock = clock;
    this.#auth = auth;
    this.#onConnected = onConnected;
    this.#origin = new URL(auth.server).origin;
    this.#timing = completeTiming(timing);
  }

  get connected(): boolean {
    return this.#current?.usable ?? false;
  }

  get lastSignOfLifeMs(): number | undefined {
    return this.#lastSignOfLife;
  }

  async request(request: HttpRequest): Promise<HttpResponse> {
    // A session may be retired before the wait for it ends: another request saw a new certificate.
    let session = await abortable(this.#usableSession(), request.signal);
    if (!session.usable) session = await abortable(this.#usableSession(), request.signal);
    return await session.request(request);
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.#disposed = true;
    const reason = new TransportError("closed", `Closed ${this.#origin}: kube-relay stops`);
    for (const session of this.#sessions) session.destroy(reason);
    this.#sessions.clear();
    return Promise.resolve();
  }

  async #usableSession(): Promise<Http2Session> {
    const tls = await this.#auth.tls();
    const current = this.#current;
    if (current?.usable && current.tls === tls) return current;
    // Watches stay on the session of the former certificate until the server ends them.
    current?.retire();
    this.#connecting ??= this.#connect(tls).finally(() => this.#connecting = undefined);
    return await this.#connecting;
  }

  async #connect(tls: Awaited<ReturnType<KubeAuth["tls"]>>): Promise<Http2Session> {
    if (this.#disposed) throw new TransportError("closed", `Closed ${this.#origin}`);
    for (const session of this.#sessions) if (session.destroyed) this.#sessions.delete(session);
    const session = new Http2Session(this.#clock, {
      origin: this.#origin,
      tls,
      timing: this.#timing,
      onSignOfLife: () => this.#lastSignOfLife = this.#clock.now(),
    });
    this.#sessions.add(session);
    await session.open();
    this.#current = session;
    this.#onConnected?.(session.peer);
    return session;
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
