/**
 * One HTTP/2 connection to the API server, with pings that detect a frozen server or a path that
 * drops packets: TCP alone would need a quarter of an hour.
 *
 * @module
 */
// Not by `await import()`: in Deno 2.9 that costs 8 MiB for the life of the process.
import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  connect,
  type SecureClientSessionOptions,
} from "node:http2";
import type { Clock, Timer } from "../os/clock.ts";
import type { TlsMaterial } from "./kube_auth.ts";
import {
  type HttpRequest,
  type HttpResponse,
  TransportError,
  type TransportTiming,
} from "./http_transport.ts";
import { StreamChunks } from "./stream_chunks.ts";

/** The error code of HTTP/2 for a request that is no longer needed. */
const CANCEL = 8;

/**
 * Bytes that the server may send before it needs an update of the window, for one answer and for all.
 * With the default of 64 KiB, the updates for lists of 10,000 objects take a quarter of the CPU time
 * of reading them. Larger windows than these save little more, and let the server fill the memory.
 */
const STREAM_WINDOW = 128 * 1024;
const SESSION_WINDOW = 256 * 1024;

/**
 * Bytes that the server may send besides the bodies of answers: headers, pings, updates of the window.
 * A thousand events a second need 9 bytes each. A flood is garbage that V8 collects late: 400 MB.
 */
const MOST_OVERHEAD = 4 * 1024 * 1024;
const OVERHEAD_PER_MS = 256;
/** An informational answer (1xx) takes as much time as this many bytes. */
const INFORMATION_COST = 4096;

/** Settings of a session. */
interface Http2SessionOptions {
  /** `https://host:port` */
  readonly origin: string;
  readonly tls: TlsMaterial;
  readonly timing: Required<TransportTiming>;
  /** Called when the server sends anything. */
  readonly onSignOfLife: () => void;
}

/** One connection. Open it once; when it is no longer {@linkcode usable}, create another. */
export class Http2Session {
  readonly tls: TlsMaterial;
  readonly #clock: Clock;
  readonly #options: Http2SessionOptions;
  #session: ClientHttp2Session | undefined;
  #failure: TransportError | undefined;
  #lastSignOfLife = 0;
  #openStreams = 0;
  #retired = false;
  #timer: Timer | undefined;
  /** Bytes besides answers that the server may still send, at the time of the last ones. */
  #overheadLeft = MOST_OVERHEAD;
  #overheadAt = 0;

  constructor(clock: Clock, options: Http2SessionOptions) {
    this.#clock = clock;
    this.#options = options;
    this.tls = options.tls;
  }

  /** Whether it accepts new requests. */
  get usable(): boolean {
    return !this.#retired && this.#session !== undefined && !this.#session.closed &&
      !this.#session.destroyed;
  }

  /** Whether the connection is closed. */
  get destroyed(): boolean {
    return this.#session?.destroyed ?? true;
  }

  /** The server's address; `undefined` when the connection is closed. */
  get peer(): string | undefined {
    return this.destroyed ? undefined : this.#session!.socket.remoteAddress;
  }

  /** Connects, with TLS. Throws a {@linkcode TransportError} that names the server and the reason. */
  open(): Promise<void> {
    const { origin, timing } = this.#options;
    const session = connect(origin, sessionOptions(this.#options));
    this.#session = session;
    return new Promise((resolve, reject) => {
      const timer = this.#clock.setTimer(timing.connectTimeoutMs, () => {
        const text = `no answer within ${timing.connectTimeoutMs} ms; is the address right, and ` +
          "is no firewall in between?";
        this.destroy(new TransportError("connect", `Cannot connect to ${origin}: ${text}`));
      });
      session.once("connect", () => {
        timer.cancel();
        session.setLocalWindowSize(SESSION_WINDOW);
        session.socket.on("data", (bytes: Uint8Array) => this.#noteBytes(bytes.length));
        this.#noteSignOfLife();
        this.#armPing();
        resolve();
      });
      session.on("error", (error) => {
        this.#failure ??= new TransportError("closed", `Lost ${origin}: ${error.message}`, {
          cause: error,
        });
        reject(connectError(origin, error));
      });
      session.on("close", () => {
        timer.cancel();
        this.#timer?.cancel();
        reject(this.#failure ?? connectError(origin, new Error("the connection was closed")));
      });
      // The server completes its open streams and accepts no new ones.
      session.on("goaway", () => this.retire());
    });
  }

  /** Sends one request. Throws a {@linkcode TransportError} or the signal's reason. */
  async request(request: HttpRequest): Promise<HttpResponse> {
    request.signal.throwIfAborted();
    if (!this.usable) throw this.#streamError(new Error("the connection was ended"));
    const stream = this.#session!.request({
      ":method": request.method,
      ":path": request.path,
      ...request.headers,
    });
    this.#openStreams++;
    stream.once("close", () => {
      this.#openStreams--;
      this.#destroyIfIdle();
    });
    // The promises below report errors; without a listener a late one would end the process.
    stream.on("error", () => {});
    stream.end(request.body);
    try {
      return await this.#response(stream, request.signal);
    } catch (error) {
      stream.close(CANCEL);
      throw error;
    }
  }

  /** Accepts no more requests; ends when the open ones are done. */
  retire(): void {
    this.#retired = true;
    this.#destroyIfIdle();
  }

  /** Ends the connection and all its requests at once. */
  destroy(reason: TransportError): void {
    this.#failure ??= reason;
    this.#timer?.cancel();
    this.#session?.destroy();
  }

  #response(stream: ClientHttp2Stream, signal: AbortSignal): Promise<HttpResponse> {
    const { origin, timing } = this.#options;
    return new Promise((resolve, reject) => {
      const timer = this.#clock.setTimer(timing.responseTimeoutMs, () => {
        const text = `no answer within ${timing.responseTimeoutMs} ms`;
        fail(new TransportError("frozen", `Cannot get an answer of ${origin}: ${text}`));
      });
      const settle = () => {
        timer.cancel();
        signal.removeEventListener("abort", onAbort);
      };
      const fail = (error: unknown) => {
        settle();
        reject(error);
      };
      const onAbort = () => fail(signal.reason);
      signal.addEventListener("abort", onAbort, { once: true });
      stream.once("error", (error) => fail(this.#streamError(error)));
      stream.once("close", () => fail(this.#streamError()));
      stream.on("headers", () => this.#overheadLeft -= INFORMATION_COST);
      stream.once("response", (headers) => {
        this.#noteSignOfLife();
        settle();
        const retryAfter = headers["retry-after"];
        resolve({
          status: Number(headers[":status"]),
          contentType: headers["content-type"],
          retryAfter: typeof retryAfter === "string" ? retryAfter : undefined,
          body: this.#body({ stream, chunks: new StreamChunks(stream) }, signal),
        });
        stream.on("data", (chunk: Uint8Array) => this.#overheadLeft += chunk.length);
      });
    });
  }

  async *#body(
    { stream, chunks }: { readonly stream: ClientHttp2Stream; readonly chunks: StreamChunks },
    signal: AbortSignal,
  ): AsyncGenerator<Uint8Array, undefined> {
    const onAbort = () => stream.close(CANCEL);
    signal.addEventListener("abort", onAbort, { once: true });
    try {
      signal.throwIfAborted();
      for await (const chunk of chunks) {
        signal.throwIfAborted();
        this.#noteSignOfLife();
        yield chunk;
      }
      // A cancelled stream, or one whose connection broke, ends like a complete one.
      signal.throwIfAborted();
      if (this.#failure !== undefined || stream.rstCode !== 0) throw this.#streamError();
      return undefined;
    } catch (error) {
      signal.throwIfAborted();
      throw error instanceof TransportError ? error : this.#streamError(error);
    } finally {
      signal.removeEventListener("abort", onAbort);
      stream.close(CANCEL);
    }
  }

  #noteBytes(length: number): void {
    const now = this.#clock.now();
    const refilled = this.#overheadLeft + (now - this.#overheadAt) * OVERHEAD_PER_MS;
    this.#overheadAt = now;
    this.#overheadLeft = Math.min(MOST_OVERHEAD, refilled) - length;
    if (this.#overheadLeft >= 0) return;
    const text = `it sent more than ${MOST_OVERHEAD} bytes besides answers`;
    this.destroy(new TransportError("protocol", `Lost ${this.#options.origin}: ${text}`));
  }

  #streamError(cause?: unknown): TransportError {
    if (this.#failure) return this.#failure;
    const reason = cause instanceof Error ? cause.message : "the server ended the request";
    return new TransportError("closed", `Lost ${this.#options.origin}: ${reason}`, { cause });
  }

  #noteSignOfLife(): void {
    this.#lastSignOfLife = this.#clock.now();
    this.#options.onSignOfLife();
  }

  #armPing(): void {
    const { pingAfterMs } = this.#options.timing;
    const silence = this.#clock.now() - this.#lastSignOfLife;
    // Rounded up: a fraction that is lost in the sum with the time would be waited for again and again.
    this.#timer = this.#clock.setTimer(Math.ceil(pingAfterMs - silence), () => {
      const silence = this.#clock.now() - this.#lastSignOfLife;
      if (silence < pingAfterMs) this.#armPing();
      else this.#ping();
    });
  }

  #ping(): void {
    const session = this.#session;
    if (!session || session.destroyed) return;
    const { origin, timing } = this.#options;
    const askedAt = this.#clock.now();
    // Any received data counts, not only the answer, which may be queued behind megabytes of a
    // list.
    this.#timer = this.#clock.setTimer(timing.pingTimeoutMs, () => {
      if (this.#lastSignOfLife > askedAt) return this.#armPing();
      const silent = Math.round(this.#clock.now() - this.#lastSignOfLife);
      this.destroy(
        new TransportError("frozen", `Lost ${origin}: no sign of life for ${silent} ms`),
      );
    });
    session.ping((error: Error | null) => {
      if (error || session.destroyed) return;
      this.#noteSignOfLife();
      this.#timer?.cancel();
      this.#armPing();
    });
  }

  #destroyIfIdle(): void {
    if (!this.#retired || this.#openStreams > 0) return;
    this.#timer?.cancel();
    this.#session?.destroy();
  }
}

function sessionOptions({ origin, tls }: Http2SessionOptions): SecureClientSessionOptions {
  // Not `ALPNProtocols`: node:http2 offers only h2 by itself.
  const options: SecureClientSessionOptions = {
    rejectUnauthorized: !tls.insecure,
    settings: { enablePush: false, initialWindowSize: STREAM_WINDOW },
  };
  if (tls.ca !== undefined) options.ca = tls.ca;
  if (tls.cert !== undefined) options.cert = tls.cert;
  if (tls.key !== undefined) options.key = tls.key;
  if (tls.serverName !== undefined) options.servername = tls.serverName;
  else if (!isIpHost(origin)) options.servername = new URL(origin).hostname;
  return options;
}

function isIpHost(origin: string): boolean {
  const { hostname } = new URL(origin);
  return hostname.startsWith("[") || /^[0-9.]+$/.test(hostname);
}

/** Returns the reason and the remedy. The codes come from Node and OpenSSL. */
function connectError(origin: string, error: Error & { code?: string }): TransportError {
  const cure = CURES.find(([pattern]) => pattern.test(error.code ?? ""))?.[1];
  const message = `Cannot connect to ${origin}: ${error.message}`;
  return new TransportError("connect", cure ? `${message}; ${cure}` : message, { cause: error });
}

const CURES: readonly (readonly [RegExp, string])[] = [
  [
    /SELF_SIGNED|UNABLE_TO_(GET|VERIFY)|CERT_UNTRUSTED/,
    "its certificate is not of the CA that the kubeconfig gives (certificate-authority-data)",
  ],
  [/ALTNAME/, "set tls-server-name in the kubeconfig to a name that the certificate has"],
  [/CERT_HAS_EXPIRED|CERT_NOT_YET_VALID/, "renew its certificate, or set this machine's clock"],
  [/NO_APPLICATION_PROTOCOL/, "it offers no HTTP/2, which API servers and their proxies must"],
  [/WRONG_VERSION_NUMBER/, "it doesn't speak TLS; should the address begin with http://?"],
];
