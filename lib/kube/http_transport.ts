/**
 * The HTTP features that {@linkcode KubeClient} needs: abortable requests, bodies in pieces, and
 * the time of the server's last data.
 *
 * @module
 */

/** One request. */
export interface HttpRequest {
  readonly method: "GET" | "POST" | "PATCH";
  /** Path and query, beginning with `/`. */
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string;
  /** Ends the request at any moment, also while the body is read. */
  readonly signal: AbortSignal;
}

/** One answer. */
export interface HttpResponse {
  readonly status: number;
  /** The media type of the body, with its parameters. */
  readonly contentType: string | undefined;
  /** The raw `Retry-After` header. */
  readonly retryAfter: string | undefined;
  /**
   * The body as it arrives. It must be read to its end or left early (`break`, `return()`), or the
   * request stays open. Use or copy a piece before requesting the next one.
   */
  readonly body: AsyncIterableIterator<Uint8Array>;
}

/** Requests to one server. */
export interface HttpTransport extends AsyncDisposable {
  /**
   * Resolves when the headers have arrived. Throws a {@linkcode TransportError} or the signal's
   * reason.
   */
  request(request: HttpRequest): Promise<HttpResponse>;
  /** Whether a connection is open now. */
  readonly connected: boolean;
  /** The time of the server's last message, by `Clock.now()`; `undefined` if there was none. */
  readonly lastSignOfLifeMs: number | undefined;
}

/** Time limits of a transport. */
export interface TransportTiming {
  /** Limit for connecting, including TLS. @default {10000} */
  readonly connectTimeoutMs?: number;
  /** Limit for the headers of an answer. @default {60000} */
  readonly responseTimeoutMs?: number;
  /** The server is pinged after this time without a byte. @default {30000} */
  readonly pingAfterMs?: number;
  /** Limit for the answer to a ping. @default {15000} */
  readonly pingTimeoutMs?: number;
}

/** {@linkcode TransportTiming} with all defaults filled in. */
export function completeTiming(timing: TransportTiming = {}): Required<TransportTiming> {
  return {
    connectTimeoutMs: timing.connectTimeoutMs ?? 10_000,
    responseTimeoutMs: timing.responseTimeoutMs ?? 60_000,
    pingAfterMs: timing.pingAfterMs ?? 30_000,
    pingTimeoutMs: timing.pingTimeoutMs ?? 15_000,
  };
}

/** The kind of a failure below HTTP. */
type TransportFailure =
  /** The connection could not be established. */
  | "connect"
  /** The connection broke. */
  | "closed"
  /** The server is connected and does not answer. */
  | "frozen"
  /** The server violated the protocol. */
  | "protocol";

/** A failure below HTTP; the same request may succeed later. */
export class TransportError extends Error {
  override name = "TransportError";
  constructor(readonly kind: TransportFailure, message: string, options?: ErrorOptions) {
    super(message, options);
  }
}
