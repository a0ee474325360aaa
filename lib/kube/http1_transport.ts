/**
 * Requests to a plain `http://` server, such as `kubectl proxy` or the insecure port of a test API
 * server. Uses HTTP/1.1, because neither supports HTTP/2 without TLS, and never sends credentials.
 *
 * @module
 */
import { messageOf } from "../log/message_of.ts";
import type { Clock, Timer } from "../os/clock.ts";
import {
  completeTiming,
  type HttpRequest,
  type HttpResponse,
  type HttpTransport,
  TransportError,
  type TransportTiming,
} from "./http_transport.ts";

/** Dependencies of {@linkcode Http1Transport}. */
interface Http1TransportDependencies {
  readonly clock: Clock;
  /** URL of the server; only its origin is used. */
  readonly server: string;
}

/**
 * {@linkcode HttpTransport} over `fetch`: one connection per watch, and a probe instead of pings.
 */
export class Http1Transport implements HttpTransport {
  readonly #clock: Clock;
  readonly #origin: string;
  readonly #timing: Required<TransportTiming>;
  readonly #open = new Set<AbortController>();
  #client: Deno.HttpClient | undefined;
  #timer: Timer | undefined;
  #lastSignOfLife: number | undefined;
  #disposed = false;

  constructor({ clock, server }: Http1TransportDependencies, timing: TransportTiming = {}) {
    this.#clock = clock;
    this.#origin = new URL(server).origin;
    this.#timing = completeTiming(timing);
  }

  get connected(): boolean {
    return this.#open.size > 0 && this.#lastSignOfLife !== undefined;
  }

  get lastSignOfLifeMs(): number | undefined {
    return this.#lastSignOfLife;
  }

  async request(request: HttpRequest): Promise<HttpResponse> {
    request.signal.throwIfAborted();
    if (this.#disposed) throw new TransportError("closed", `Closed ${this.#origin}`);
    const controller = new AbortController();
    const onAbort = () => controller.abort(request.signal.reason);
    request.signal.addEventListener("abort", onAbort, { once: true });
    this.#open.add(controller);
    const release = () => {
      request.signal.removeEventListener("abort", onAbort);
      this.#open.delete(controller);
      if (this.#open.size === 0) this.#disarm();
    };
    try {
      this.#armProbe();
      const response = await this.#fetch(request, controller);
      return {
        status: response.status,
        contentType: response.headers.get("content-type") ?? undefined,
        retryAfter: response.headers.get("retry-after") ?? undefined,
        body: this.#body(response, { controller, release }),
      };
    } catch (error) {
      release();
      throw this.#toTransportError(error, controller.signal, "connect");
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.#disposed = true;
    this.#reset(new TransportError("closed", `Closed ${this.#origin}: kube-relay stops`));
    return Promise.resolve();
  }

  async #fetch(
    { method, path, headers, body }: Pick<HttpRequest, "method" | "path" | "headers" | "body">,
    controller: AbortController,
  ): Promise<Response> {
    // No pool of idle connections: it would return a broken one again and again.
    this.#client ??= Deno.createHttpClient({ poolMaxIdlePerHost: 0, http2: false });
    const timeoutMs = this.#timing.responseTimeoutMs;
    const timer = this.#clock.setTimer(timeoutMs, () => {
      const text = `Cannot get an answer of ${this.#origin}: none within ${timeoutMs} ms`;
      controller.abort(new TransportError("frozen", text));
    });
    try {
      const response = await fetch(this.#origin + path, {
        method,
        headers,
        client: this.#client,
        signal: controller.signal,
        redirect: "error",
        ...(body === undefined ? {} : { body }),
      });
      this.#noteSignOfLife();
      return response;
    } finally {
      timer.cancel();
    }
  }

  async *#body(
    response: Response,
    { controller, release }: { controller: AbortController; release: () => void },
  ): AsyncGenerator<Uint8Array, undefined> {
    try {
      for await (const chunk of response.body ?? []) {
        this.#noteSignOfLife();
        yield chunk;
      }
      controller.signal.throwIfAborted();
      return undefined;
    } catch (error) {
      throw this.#toTransportError(error, controller.signal, "closed");
    } finally {
      release();
      controller.abort();
    }
  }

  #toTransportError(error: unknown, signal: AbortSignal, kind: "connect" | "closed"): unknown {
    if (signal.aborted) return signal.reason;
    if (error instanceof TransportError) return error;
    const reason = messageOf(error);
    const verb = kind === "connect" ? "Cannot connect to" : "Lost";
    return new TransportError(kind, `${verb} ${this.#origin}: ${reason}`, { cause: error });
  }

  #noteSignOfLife(): void {
    this.#lastSignOfLife = this.#clock.now();
  }

  #disarm(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  #armProbe(): void {
    if (this.#timer !== undefined) return;
    const { pingAfterMs } = this.#timing;
    const silence = this.#clock.now() - (this.#lastSignOfLife ?? this.#clock.now());
    this.#timer = this.#clock.setTimer(Math.max(0, Math.ceil(pingAfterMs - silence)), () => {
      this.#timer = undefined;
      const last = this.#lastSignOfLife;
      if (last !== undefined && this.#clock.now() - last < pingAfterMs) return this.#armProbe();
      this.#probe();
    });
  }

  /** HTTP/1.1 has no ping: a small request over a connection of its own replaces it. */
  #probe(): void {
    const controller = new AbortController();
    const { pingTimeoutMs } = this.#timing;
    this.#timer = this.#clock.setTimer(pingTimeoutMs, () => controller.abort());
    this.#fetch({ method: "GET", path: "/version", headers: {} }, controller)
      .then((response) => response.body?.cancel())
      .then(() => {
        this.#disarm();
        if (this.#open.size > 0) this.#armProbe();
      })
      .catch(() => {
        const text = `Lost ${this.#origin}: no sign of life within ${pingTimeoutMs} ms`;
        this.#reset(new TransportError("frozen", text));
      });
  }

  #reset(reason: TransportError): void {
    this.#disarm();
    for (const controller of [...this.#open]) controller.abort(reason);
    this.#client?.close();
    this.#client = undefined;
  }
}
