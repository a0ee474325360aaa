/**
 * The HTTP features that {@linkcode KubeClient} needs, and what HTTP/1.1 and HTTP/2 do for them.
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
   * request stays open. Its pieces are not used again.
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

/**
 * A failure below HTTP; the same request may succeed later. The connection could not be established
 * (`connect`) or broke (`closed`), or the server does not answer (`frozen`) or violated the protocol.
 */
export class TransportError extends Error {
  override name = "TransportError";
  constructor(
    readonly kind: "connect" | "closed" | "frozen" | "protocol",
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/** The protocol of a connection: HTTP/1.1 or HTTP/2. Pings, time limits and errors are not its part. */
export interface Wire {
  /** Connects. Throws a {@linkcode TransportError}. */
  open(): Promise<void>;
  /** Whether it takes more requests. */
  readonly isOpen: boolean;
  /** The server's address, if it is known. */
  readonly peer: string | undefined;
  /** Sends a request; the signal ends it. */
  send(request: HttpRequest): Promise<HttpResponse>;
  /** Resolves when the server answers; never, or with an error, if it does not. */
  ping(signal: AbortSignal): Promise<void>;
  close(): void;
}
