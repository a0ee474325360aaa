import type { IpAddress } from "../net/ip_address.ts";
import type { Clock, Timer } from "./clock.ts";
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

/** Read at a time, which fits most requests of health checks. */
const PIECE_BYTES = 1024;
/** Longest head, and as much of the data after it. */
const MOST_UNREAD_BYTES = 16_384;
/** Longest body of a request. */
const MOST_BODY_BYTES = 8192;
/** Time limit for the message that explains why a connection is closed. */
const LAST_WORDS_MS = 1000;
/** A timer that fires this late was blocked: data that has arrived is read first. */
const STALL_MS = 500;

/** An accepted connection: reads a request, answers it, and reads the next. */
export class HttpConnection {
  readonly #input: HttpInput;
  readonly #finished = Promise.withResolvers<void>();
  #waitingSince: number | undefined;
  #deadline = Infinity;
  #timer: Timer | undefined;
  #timerAt = Infinity;
  #isRefusing = false;
  #isClosed = false;

  /** Begins to read. */
  constructor(
    private readonly socket: HttpSocket,
    readonly peer: IpAddress | undefined,
    private readonly handler: HttpHandler,
    private readonly context: {
      readonly clock: Clock;
      readonly times: HttpTimes;
      /** Limits the answers of all connections of the server in one turn. */
      readonly turns: TurnShare;
      /** Reports an error of the handler, or of its response body. */
      readonly onError: (error: unknown) => void;
    },
  ) {
    this.#input = new HttpInput(socket);
    void this.#serve();
  }

  /** Resolves once it is closed. Does not wait for a handler that does not end. */
  get finished(): Promise<void> {
    return this.#finished.promise;
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  /** Since when it waits for the client's request, on the clock; `undefined` during a response. */
  get waitingSince(): number | undefined {
    return this.#isClosed ? undefined : this.#waitingSince;
  }

  /** Closes it at once. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#timer?.cancel();
    this.socket.close();
    this.#finished.resolve();
  }

  async #serve(): Promise<void> {
    const { clock, times, turns } = this.context;
    try {
      for (let waitMs = times.requestMs;; waitMs = times.idleMs) {
        this.#wait(waitMs);
        const head = await this.#readHead();
        if (head === undefined) break;
        const body = await this.#readBody(head);
        this.#waitingSince = undefined;
        this.#limit(Infinity);
        await turns.take();
        if (this.#isRefusing || this.#isClosed || !await this.#answer(head, body)) break;
        // A client with a hundred requests at once waits behind those with one.
        if (this.#input.hasBegun) await clock.yieldToEventLoop();
      }
    } catch (error) {
      // Otherwise the client has disconnected, or the connection was closed.
      if (error instanceof HttpRefusal) await this.#refuse(error.status);
    } finally {
      this.close();
    }
  }

  #wait(ms: number): void {
    this.#waitingSince = this.context.clock.now();
    this.#limit(ms);
  }

  /**
   * Ends the connection after this time. A timer that is to fire earlier stays: most requests set none.
   */
  #limit(ms: number): void {
    this.#deadline = this.context.clock.now() + ms;
    if (this.#deadline < this.#timerAt) this.#arm();
  }

  #arm(): void {
    if (this.#isClosed) return;
    const { clock } = this.context;
    this.#timer?.cancel();
    this.#timerAt = this.#deadline;
    this.#timer = clock.setTimer(Math.max(1, this.#timerAt - clock.now()), () => {
      const isLate = clock.now() - this.#timerAt > STALL_MS;
      this.#timerAt = Infinity;
      if (this.#deadline === Infinity) return;
      if (this.#deadline > clock.now()) this.#arm();
      else if (isLate) this.#limit(STALL_MS);
      else this.#expire();
    });
  }

  /** An incomplete request is answered with 408. */
  #expire(): void {
    const isAsking = this.#waitingSince !== undefined && this.#input.hasBegun;
    if (isAsking && !this.#isRefusing) void this.#refuse(408);
    else this.close();
  }

  async #readHead(): Promise<HttpHead | undefined> {
    for (let isIdle = true;;) {
      const text = this.#input.takeHead();
      if (text !== undefined) return parseHttpHead(text);
      if (isIdle && this.#input.hasBegun) this.#wait(this.context.times.requestMs);
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
    const { clock, times, onError } = this.context;
    const gone = new AbortController();
    let isAnswered = false;
    const onEnd = (isOpen: boolean) => void (isOpen || isAnswered || gone.abort());
    this.#input.watch().then(onEnd, () => onEnd(false));
    const response = await this.#respond(head, body, gone.signal);
    const isStream = response.headers.has("transfer-encoding");
    this.#limit(times.answerMs);
    await writeResponse(this.socket, response, {
      head,
      now: clock.wallNow(),
      gone: gone.signal,
      onError,
      ...(isStream && {
        onPiece: (isUnderWay: boolean) => this.#limit(isUnderWay ? times.pieceMs : Infinity),
      }),
    });
    isAnswered = true;
    return head.keepsOpen && !gone.signal.aborted && (head.takesChunks || !isStream);
  }

  async #respond(
    { method, url, headers }: HttpHead,
    body: Uint8Array<ArrayBuffer>,
    signal: AbortSignal,
  ): Promise<Response> {
    try {
      const hasBody = body.length > 0 && method !== "GET" && method !== "HEAD";
      const request = new Request(url, { method, headers, signal, ...(hasBody && { body }) });
      return await this.handler(request, this.peer);
    } catch (error) {
      this.context.onError(error);
      return statusAnswer(500);
    }
  }

  async #refuse(status: number): Promise<void> {
    this.#isRefusing = true;
    this.#limit(LAST_WORDS_MS);
    try {
      const response = statusAnswer(status);
      const head = { method: "GET", keepsOpen: false, takesChunks: true };
      const text = responseHead(response, { head, now: this.context.clock.wallNow() });
      await this.socket.write(new TextEncoder().encode(`${text}${await response.text()}`));
    } catch {
      // The client does not read.
    } finally {
      this.close();
    }
  }
}

/** Reads a client's data ahead, up to a bound. */
class HttpInput {
  #data = new Uint8Array();
  #filling: Promise<boolean> | undefined;

  constructor(private readonly socket: HttpSocket) {}

  /** Whether there is unread data of the client. */
  get hasBegun(): boolean {
    return this.#data.length > 0;
  }

  /**
   * Reads more; resolves to false at the end of the stream. Waits for a running read. Throws an
   * {@linkcode HttpRefusal} at the bound.
   */
  fill(): Promise<boolean> {
    return this.#filling ??= this.#read().finally(() => this.#filling = undefined);
  }

  /** Like {@linkcode fill}, to detect the end of the stream; a queued request hides it. */
  watch(): Promise<boolean> {
    return this.hasBegun ? Promise.resolve(true) : this.fill();
  }

  /** Takes the head of a request without its empty line; `undefined` while it is incomplete. */
  takeHead(): string | undefined {
    const text = String.fromCharCode(...this.#data);
    // As RFC 9112 requires: old clients send an empty line after a body.
    const [blank] = /^[\r\n]*/.exec(text)!;
    const end = /\r?\n\r?\n/.exec(text.slice(blank.length));
    const head = end ? blank.length + end.index + end[0].length : blank.length;
    this.#data = this.#data.slice(head);
    return end ? text.slice(blank.length, head - end[0].length) : undefined;
  }

  /** Takes the next bytes; `undefined` while they are incomplete. */
  take(count: number): Uint8Array<ArrayBuffer> | undefined {
    if (this.#data.length < count) return undefined;
    const bytes = this.#data.slice(0, count);
    this.#data = this.#data.slice(count);
    return bytes;
  }

  async #read(): Promise<boolean> {
    if (this.#data.length >= MOST_UNREAD_BYTES) throw new HttpRefusal(431);
    // Larger once a head is long: a connection that waits has a small buffer.
    const room = Math.min(
      Math.max(PIECE_BYTES, this.#data.length),
      MOST_UNREAD_BYTES - this.#data.length,
    );
    const piece = new Uint8Array(room);
    const count = await this.socket.read(piece);
    if (count === null) return false;
    const data = new Uint8Array(this.#data.length + count);
    data.set(this.#data);
    data.set(piece.subarray(0, count), this.#data.length);
    this.#data = data;
    return true;
  }
}
