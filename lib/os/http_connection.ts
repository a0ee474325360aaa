import type { IpAddress } from "../net/ip_address.ts";
import type { Clock } from "./clock.ts";
import { HttpInput } from "./http_input.ts";
import { type HttpHead, HttpRefusal, parseHttpHead } from "./http_head.ts";
import { responseHead, statusAnswer, writeResponse } from "./http_output.ts";
import type { TcpConnection } from "./network.ts";
import type { TurnShare } from "./turn_share.ts";

/** Answers a request. `peer` is the client's address, IPv4 even if it came through `[::]`. */
export type HttpHandler = (
  request: Request,
  peer: IpAddress | undefined,
) => Response | Promise<Response>;

/** The used part of a TCP or Unix connection. */
export type HttpSocket = Pick<TcpConnection, "read" | "write" | "close">;

/** Time limits for a client, in milliseconds. */
export interface HttpTimes {
  /** From the first byte of a request, or from the connection, to the end of the request. */
  readonly requestMs: number;
  /** From an answer to the next request. */
  readonly idleMs: number;
  /** To read a response of known length. */
  readonly answerMs: number;
  /** To read one piece of a response of unknown length. */
  readonly pieceMs: number;
}

interface HttpConnectionContext {
  readonly clock: Clock;
  readonly times: HttpTimes;
  /** Limits the work of all connections of the server in one turn. */
  readonly turns: TurnShare;
  readonly handler: HttpHandler;
  /**
   * Whether other connections wait for the place of this one, which is then closed after a
   * response.
   */
  readonly isCrowded: (peer: IpAddress | undefined) => boolean;
  /** Reports an error of the handler, or of its response body. */
  readonly onError: (error: unknown) => void;
}

/** Longest body of a request. */
const MOST_BODY_BYTES = 8192;
/** Time limit for the message that explains why a connection is closed. */
const LAST_WORDS_MS = 1000;

/** An accepted connection: reads a request, answers it, and reads the next. */
export class HttpConnection {
  readonly peer: IpAddress | undefined;
  readonly #context: HttpConnectionContext;
  readonly #socket: HttpSocket;
  readonly #input: HttpInput;
  readonly #finished = Promise.withResolvers<void>();
  #waitingSince: number | undefined;
  #isQueued = false;
  #deadline = Infinity;
  #isRefusing = false;
  #isClosed = false;

  /** Begins to read. */
  constructor(
    context: HttpConnectionContext,
    { socket, peer }: { readonly socket: HttpSocket; readonly peer: IpAddress | undefined },
  ) {
    this.#context = context;
    this.#socket = socket;
    this.#input = new HttpInput(socket);
    this.peer = peer;
    void this.#serve();
  }

  /** Resolves once it is closed. Does not wait for a handler that does not end. */
  get finished(): Promise<void> {
    return this.#finished.promise;
  }

  /** Since when it waits for the client's request, on the clock; `undefined` during a response. */
  get waitingSince(): number | undefined {
    return this.#waitingSince;
  }

  /** Whether a request has arrived and its response has not begun. */
  get isQueued(): boolean {
    return this.#isQueued;
  }

  /** The time at which {@linkcode expire} must be called, on the clock. */
  get deadline(): number {
    return this.#deadline;
  }

  /** Closes it at once. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#socket.close();
    this.#finished.resolve();
  }

  /** Ends a connection whose client is too slow. An incomplete request is answered with 408. */
  expire(): void {
    if (this.#waitingSince === undefined || !this.#input.hasBegun || this.#isRefusing) {
      return this.close();
    }
    void this.#refuse(408);
  }

  async #serve(): Promise<void> {
    const { times } = this.#context;
    try {
      for (let waitMs = times.requestMs;; waitMs = times.idleMs) {
        this.#wait(waitMs);
        const head = await this.#readHead();
        if (head === undefined) break;
        const body = await this.#readBody(head);
        this.#waitingSince = undefined;
        this.#deadline = Infinity;
        this.#isQueued = true;
        await this.#context.turns.take(this.peer);
        this.#isQueued = false;
        if (this.#isRefusing || this.#isClosed || !await this.#answer(head, body)) break;
        // A client with a hundred requests at once waits behind those with one.
        if (this.#input.hasBegun) await this.#context.clock.yieldToEventLoop();
      }
    } catch (error) {
      // Otherwise the client has disconnected, or the connection was closed.
      if (error instanceof HttpRefusal) await this.#refuse(error.status);
    } finally {
      this.close();
    }
  }

  #wait(ms: number): void {
    const now = this.#context.clock.now();
    this.#waitingSince = now;
    this.#deadline = now + ms;
  }

  async #readHead(): Promise<HttpHead | undefined> {
    const { requestMs } = this.#context.times;
    for (let isIdle = true;;) {
      const text = this.#input.takeHead();
      if (text !== undefined) return parseHttpHead(text);
      if (isIdle && this.#input.hasBegun) this.#wait(requestMs);
      isIdle = !this.#input.hasBegun;
      if (!await this.#input.fill()) return undefined;
    }
  }

  async #readBody({ bodyBytes }: HttpHead): Promise<Uint8Array<ArrayBuffer>> {
    if (bodyBytes > MOST_BODY_BYTES) throw new HttpRefusal(413);
    for (;;) {
      const body = this.#input.take(bodyBytes);
      if (body !== undefined) return body;
      if (!await this.#input.fill()) throw new HttpRefusal(400);
    }
  }

  /** Returns whether another request may follow. */
  async #answer(head: HttpHead, body: Uint8Array<ArrayBuffer>): Promise<boolean> {
    const { clock, times, turns, isCrowded, onError } = this.#context;
    const gone = new AbortController();
    let isAnswered = false;
    const onEnd = (isOpen: boolean) => void (isOpen || isAnswered || gone.abort());
    this.#input.watch().then(onEnd, () => onEnd(false));
    const response = await this.#respond(head, body, gone.signal);
    const isStream = response.headers.has("transfer-encoding");
    const keepsOpen = head.keepsOpen && !isCrowded(this.peer);
    const until = (ms: number) => this.#deadline = clock.now() + ms;
    until(times.answerMs);
    await writeResponse(this.#socket, response, {
      head: { ...head, keepsOpen },
      now: clock.wallNow(),
      gone: gone.signal,
      onError,
      takeTurn: () => turns.take(this.peer),
      ...(isStream && {
        onPiece: (isUnderWay: boolean) => until(isUnderWay ? times.pieceMs : Infinity),
      }),
    });
    isAnswered = true;
    return keepsOpen && !gone.signal.aborted && (head.takesChunks || !isStream);
  }

  async #respond(
    { method, url, headers }: HttpHead,
    body: Uint8Array<ArrayBuffer>,
    signal: AbortSignal,
  ): Promise<Response> {
    const { handler, onError } = this.#context;
    try {
      const hasBody = body.length > 0 && method !== "GET" && method !== "HEAD";
      const request = new Request(url, { method, headers, signal, ...(hasBody && { body }) });
      return await handler(request, this.peer);
    } catch (error) {
      onError(error);
      return statusAnswer(500);
    }
  }

  async #refuse(status: number): Promise<void> {
    this.#isRefusing = true;
    this.#deadline = this.#context.clock.now() + LAST_WORDS_MS;
    try {
      const response = statusAnswer(status);
      const head = { method: "GET", keepsOpen: false, takesChunks: true };
      const options = { head, now: this.#context.clock.wallNow() };
      const text = `${responseHead(response, options)}${await response.text()}`;
      await this.#socket.write(new TextEncoder().encode(text));
    } catch {
      // The client does not read.
    } finally {
      this.close();
    }
  }
}
