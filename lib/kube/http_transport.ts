/**
 * What {@linkcode KubeClient} needs of HTTP: requests that can be taken back, bodies that arrive in
 * pieces, and a word on whether the server is still there.
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
  /** The `Retry-After` header, as it was sent. */
  readonly retryAfter: string | undefined;
  /**
   * The body as it arrives. It has to be read to its end or left early (`break`, `return()`), else the
   * request stays open. A piece must be used or copied before the next is asked for.
   */
  readonly body: AsyncIterableIterator<Uint8Array>;
}

/** Requests to one server. */
export interface HttpTransport extends AsyncDisposable {
  /** Resolves when the headers are here. Throws a {@linkcode TransportError} or the signal's reason. */
  request(request: HttpRequest): Promise<HttpResponse>;
  /** Whether a connection is open now. */
  readonly connected: boolean;
  /** When the server last sent anything, in the time of `Clock.now()`; `undefined` if never. */
  readonly lastSignOfLifeMs: number | undefined;
}

/** Times that a transport keeps. */
export interface TransportTiming {
  /** How long connecting may take, TLS included. @default {10000} */
  readonly connectTimeoutMs?: number;
  /** How long the headers of an answer may take. @default {60000} */
  readonly responseTimeoutMs?: number;
  /** After so long without a byte the server is asked for a sign of life. @default {30000} */
  readonly pingAfterMs?: number;
  /** How long that may take. @default {15000} */
  readonly pingTimeoutMs?: number;
}

/** {@linkcode TransportTiming} with every default filled in. */
export function completeTiming(timing: TransportTiming = {}): Required<TransportTiming> {
  return {
    connectTimeoutMs: timing.connectTimeoutMs ?? 10_000,
    responseTimeoutMs: timing.responseTimeoutMs ?? 60_000,
    pingAfterMs: timing.pingAfterMs ?? 30_000,
    pingTimeoutMs: timing.pingTimeoutMs ?? 15_000,
  };
}

/** Why a request failed below HTTP. */
type TransportFailure =
  /** No connection could be made. */
  | "connect"
  /** The connection was made and broke. */
  | "closed"
  /** The server is connected and doesn't answer. */
  | "frozen"
  /** What was sent isn't what was agreed on. */
  | "protocol";

/** A request that failed below HTTP; the same request may work later. */
export class TransportError extends Error {
  override name = "TransportError";
  constructor(readonly kind: TransportFailure, message: string, options?: ErrorOptions) {
    super(message, options);
  }
}
