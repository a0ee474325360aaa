import type { IpAddress } from "../net/ip_address.ts";
import type { Clock, Timer } from "./clock.ts";
import { type HttpHead, HttpRefusal, parseHttpHead, STATUS_TEXT } from "./http_head.ts";
import type { TcpConnection } from "./network.ts";
import type { TurnShare } from "./turn_share.ts";

/** The header `server` of every response: kube-proxy sends none, so it identifies kube-relay. */
export const SERVER_NAME = "kube-relay";

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
  readonly #finished = Promise.withResolvers<void>();
  /** Resolves once it is closed. Does not wait for a handler that does not end. */
  readonly finished = this.#finished.promise;
  /** Unread data of the client. */
  #data = new Uint8Array();
  #filling: Promise<boolean> | undefined;
  #waitingSince: number | undefined;
  #deadline = Infinity;
  #timer: Timer | undefined;
  #timerAt = Infinity;
  #isRefusing = false;
  #isClosed = false;

  /**
   * Begins to read. `turns` limits the answers of all connections of the server in one turn. `onError`
   * reports an error of the handler, or of its response body.
   */
  constructor(
    private readonly socket: HttpSocket,
    readonly peer: IpAddress | undefined,
    private readonly handler: HttpHandler,
    private readonly context: {
      readonly clock: Clock;
      readonly times: HttpTimes;
      readonly turns: TurnShare;
      readonly onError: (error: unknown) => void;
    },
  ) {
    void this.#serve();
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
        const body = await this.#readBody(head.bodyBytes);
        this.#waitingSince = undefined;
        this.#limit(Infinity);
        await turns.take();
        if (this.#isRefusing || this.#isClosed || !await this.#answer(head, body)) break;
        // A client with a hundred requests at once waits behind those with one.
        if (this.#data.length > 0) await clock.yieldToEventLoop();
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
    const isAsking = this.#waitingSince !== undefined && this.#data.length > 0;
    if (isAsking && !this.#isRefusing) void this.#refuse(408);
    else this.close();
  }

  async #readHead(): Promise<HttpHead | undefined> {
    for (let isIdle = true;;) {
      const text = String.fromCharCode(...this.#data);
      // As RFC 9112 requires: old clients send an empty line after a body.
      const [blank] = /^[\r\n]*/.exec(text)!;
      const end = /\r?\n\r?\n/.exec(text.slice(blank.length));
      if (end) {
        this.#data = this.#data.slice(blank.length + end.index + end[0].length);
        return parseHttpHead(text.slice(blank.length, blank.length + end.index));
      }
      this.#data = this.#data.slice(blank.length);
      if (isIdle && this.#data.length > 0) this.#wait(this.context.times.requestMs);
      isIdle = this.#data.length === 0;
      if (!await this.#fill()) return undefined;
    }
  }

  async #readBody(length: number): Promise<Uint8Array<ArrayBuffer>> {
    if (length > MOST_BODY_BYTES) throw new HttpRefusal(413);
    while (this.#data.length < length) if (!await this.#fill()) throw new HttpRefusal(400);
    const body = this.#data.slice(0, length);
    this.#data = this.#data.slice(length);
    return body;
  }

  /** Reads more; resolves to false at the end of the stream. Waits for a running read. */
  #fill(): Promise<boolean> {
    const read = async () => {
      const { length } = this.#data;
      if (length >= MOST_UNREAD_BYTES) throw new HttpRefusal(431);
      // Larger once a head is long: a connection that waits has a small buffer.
      const room = Math.min(Math.max(PIECE_BYTES, length), MOST_UNREAD_BYTES - length);
      const piece = new Uint8Array(room);
      const count = await this.socket.read(piece);
      if (count !== null) this.#data = joined([this.#data, piece.subarray(0, count)]);
      return count !== null;
    };
    return this.#filling ??= read().finally(() => this.#filling = undefined);
  }

  /** Returns whether another request may follow. */
  async #answer(head: HttpHead, body: Uint8Array<ArrayBuffer>): Promise<boolean> {
    const { method, url, headers } = head;
    const gone = new AbortController();
    let isAnswered = false;
    const onEnd = (isOpen: boolean) => void (isOpen || isAnswered || gone.abort());
    // A queued request hides the end of the stream.
    if (this.#data.length === 0) this.#fill().then(onEnd, () => onEnd(false));
    let response: Response;
    try {
      const hasBody = body.length > 0 && method !== "GET" && method !== "HEAD";
      const { signal } = gone;
      const request = new Request(url, { method, headers, signal, ...(hasBody && { body }) });
      response = await this.handler(request, this.peer);
    } catch (error) {
      this.context.onError(error);
      response = statusAnswer(500);
    }
    const isStream = response.headers.has("transfer-encoding");
    this.#limit(this.context.times.answerMs);
    await this.#respond(response, head, gone.signal);
    isAnswered = true;
    return head.keepsOpen && !gone.signal.aborted && (head.takesChunks || !isStream);
  }

  /**
   * Writes a response. If the handler sets `content-length` or `transfer-encoding: chunked`, the body
   * is written piece by piece; any other body is read into memory to know its length.
   */
  async #respond(response: Response, head: HttpHead, gone: AbortSignal): Promise<void> {
    const { headers, status } = response;
    const isStream = headers.has("transfer-encoding");
    const hasNone = status === 204 || status === 304;
    let whole: Uint8Array | undefined;
    if (!isStream && !headers.has("content-length") && !hasNone) {
      whole = await response.bytes();
      headers.set("content-length", String(whole.length));
    }
    const start = this.#startOf(response, head);
    if (hasNone || head.method === "HEAD") {
      await this.#write(start);
      return await response.body?.cancel();
    }
    // In one piece: half a response would wait for the client's acknowledgement.
    if (whole !== undefined) return await this.#write(start, whole);
    await this.#write(start);
    const reader = response.body?.getReader();
    const isChunked = isStream && head.takesChunks;
    const cancel = () => void reader?.cancel().catch(() => {});
    if (isStream) gone.addEventListener("abort", cancel, { once: true });
    if (isStream && gone.aborted) cancel();
    try {
      for (;;) {
        const { value } = await (reader?.read().catch((error) => {
          this.context.onError(error);
          throw error;
        })) ?? {};
        if (value === undefined) break;
        if (isStream) this.#limit(this.context.times.pieceMs);
        if (isChunked && value.length > 0) {
          await this.#write(`${value.length.toString(16)}\r\n`, value, "\r\n");
        } else {
          await this.#write(value);
        }
        if (isStream) this.#limit(Infinity);
      }
    } finally {
      gone.removeEventListener("abort", cancel);
      cancel();
    }
    if (isChunked) await this.#write("0\r\n\r\n");
  }

  /** Returns the status line and the headers, with the empty line after them. */
  #startOf(
    { headers, status }: Response,
    { takesChunks, keepsOpen }: Pick<HttpHead, "takesChunks" | "keepsOpen">,
  ): string {
    headers.set("server", SERVER_NAME);
    headers.set("date", new Date(this.context.clock.wallNow()).toUTCString());
    const isUnframed = headers.has("transfer-encoding") && !takesChunks;
    if (isUnframed) headers.delete("transfer-encoding");
    if (!keepsOpen || isUnframed) headers.set("connection", "close");
    else if (!takesChunks) headers.set("connection", "keep-alive");
    const lines = [...headers].map(([name, value]) => `${name}: ${value}\r\n`);
    return `HTTP/1.1 ${status} ${STATUS_TEXT[status] ?? ""}\r\n${lines.join("")}\r\n`;
  }

  async #write(...parts: readonly (string | Uint8Array)[]): Promise<void> {
    const encoder = new TextEncoder();
    const all = parts.map((part) => typeof part === "string" ? encoder.encode(part) : part);
    const bytes = all.length === 1 ? all[0]! : joined(all);
    for (let sent = 0; sent < bytes.length;) sent += await this.socket.write(bytes.subarray(sent));
  }

  async #refuse(status: number): Promise<void> {
    this.#isRefusing = true;
    this.#limit(LAST_WORDS_MS);
    try {
      const response = statusAnswer(status);
      const start = this.#startOf(response, { keepsOpen: false, takesChunks: true });
      await this.socket.write(new TextEncoder().encode(start + await response.text()));
    } catch {
      // The client does not read.
    } finally {
      this.close();
    }
  }
}

/** Returns a status as plain text. */
function statusAnswer(status: number): Response {
  const text = `${status} ${(STATUS_TEXT[status] ?? "").toLowerCase()}\n`;
  return new Response(text, {
    status,
    headers: { "content-type": "text/plain; charset=utf-8", "content-length": `${text.length}` },
  });
}

function joined(parts: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const all = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}
