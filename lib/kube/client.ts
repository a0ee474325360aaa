/**
 * The Kubernetes API over HTTP: pages of lists, watches, single objects.
 *
 * @module
 */
import { Buffer } from "node:buffer";
import type { Clock } from "../os/clock.ts";
import { type ApiError, apiErrorFromStatus } from "./api_error.ts";
import { type HttpResponse, type HttpTransport, TransportError } from "./transport.ts";
import type { KubeAuth } from "./kube_auth.ts";
import { LinkedAbort, Watchdog } from "./linked_abort.ts";
import { MAX_OBJECT, parseJson, TextPieces } from "./json_text.ts";
import {
  jsonItems,
  type ListMeta,
  MAX_PAGE,
  PageTooLargeError,
  protobufItems,
} from "./list_page.ts";
import { PROTOBUF, tryReadStatus } from "./protobuf.ts";
import { TimeSlice } from "../os/time_slice.ts";
import { decodeWatch, type WatchEvent } from "./watch_stream.ts";

/** Selects objects of one resource. */
export interface Selection {
  /** Path of the collection, e.g. `/api/v1/services`. */
  readonly path: string;
  readonly labelSelector?: string | undefined;
  readonly fieldSelector?: string | undefined;
  /** The kind of the objects, if they may come in protobuf. @default {only in JSON} */
  readonly protobufKind?: string | undefined;
}

/** One request, answered or not. */
export interface ApiAnswer {
  readonly method: ApiRequest["method"];
  /** Host and port of the server. */
  readonly host: string;
  /** The HTTP status; `undefined` = no answer came. */
  readonly status: number | undefined;
  /**
   * Until the first byte of the answer; absent for watches, which the server may answer at any
   * time.
   */
  readonly seconds?: number;
}

/** A request without credentials. */
interface ApiRequest {
  readonly method: "GET" | "POST" | "PATCH";
  readonly path: string;
  readonly query?: Readonly<Record<string, string | undefined>>;
  readonly body?: string;
  /** Whether the answer may be in protobuf. */
  readonly mayBeProtobuf?: boolean;
  /** A status that is no failure, besides those of success. */
  readonly accepts?: number | undefined;
  readonly signal: AbortSignal;
}

const JSON_TYPE = "application/json";

/** Content types of request bodies, by action. */
const CONTENT_TYPES: Readonly<Record<ApiRequest["method"], string>> = {
  GET: JSON_TYPE,
  POST: JSON_TYPE,
  PATCH: "application/merge-patch+json",
};

/**
 * Longest time to the end of an answer other than a watch. An API server ends such requests after
 * 60 s, but a proxy in between may keep the answer open after it has lost the server.
 */
const ANSWER_MS = 120_000;
/** In characters. */
const LONGEST_LINE = 64 * 1024;

/**
 * A client of one API server. Its methods throw an {@linkcode ApiError} for an unsuccessful answer,
 * a TransportError if there is no answer, and the signal's reason when aborted.
 */
export class KubeClient {
  readonly #host: string;
  /** Paths of which the server has refused protobuf. */
  readonly #jsonOnly = new Set<string>();
  /** Path of the server's URL, for servers behind a gateway. */
  readonly #prefix: string;

  constructor(
    private readonly edges: {
      readonly clock: Clock;
      readonly auth: KubeAuth;
      readonly transport: HttpTransport;
      /** Called for each request that was not aborted. Must not throw. */
      readonly onAnswer?: (answer: ApiAnswer) => void;
      /** Longest time to the end of an answer other than a watch. @default {120000} */
      readonly answerMs?: number;
    },
  ) {
    const { host, pathname } = new URL(edges.auth.server);
    this.#host = host;
    this.#prefix = pathname.replace(/\/+$/, "");
  }

  /** Reads one object of any kind. */
  async get(path: string, signal: AbortSignal): Promise<unknown> {
    return await this.#sendForObject({ method: "GET", path, signal });
  }

  /**
   * Reads a text that the API server passes on, of a node for example, and calls back for each line;
   * resolves to the status. The sender is not trusted: a RangeError is thrown for more than `mostBytes` or
   * for a very long line.
   */
  async readLines(
    { path, mostBytes, accepts, signal }: {
      readonly path: string;
      readonly mostBytes: number;
      /** A status that is no failure, besides those of success. */
      readonly accepts?: number;
      readonly signal: AbortSignal;
    },
    onLine: (line: string) => void,
  ): Promise<number> {
    using call = new LinkedAbort(signal);
    using _limit = this.#limit(call);
    const request = { method: "GET", path, accepts, signal: call.signal } as const;
    const { body, status } = await this.#send(request);
    const decoder = new TextDecoder();
    let [rest, total] = ["", 0];
    for await (const chunk of body) {
      total += chunk.length;
      const lines = (rest + decoder.decode(chunk, { stream: true })).split("\n");
      rest = lines.pop()!;
      if (total > mostBytes) throw new RangeError(`its answer has more than ${mostBytes} bytes`);
      if (rest.length > LONGEST_LINE) throw new RangeError("its answer has a line without an end");
      for (const line of lines) onLine(line);
    }
    if (rest !== "") onLine(rest);
    return status;
  }

  /** Creates one object in the collection at `path`; resolves to the stored object. */
  async create(path: string, object: unknown, signal: AbortSignal): Promise<unknown> {
    const body = JSON.stringify(object);
    return await this.#sendForObject({ method: "POST", path, body, signal });
  }

  /**
   * Changes fields of one object by a JSON merge patch (RFC 7386); resolves to the stored object.
   */
  async patch(path: string, patch: unknown, signal: AbortSignal): Promise<unknown> {
    const body = JSON.stringify(patch);
    return await this.#sendForObject({ method: "PATCH", path, body, signal });
  }

  /**
   * Reads one page of a list; passes on each raw item as soon as it is parsed, and does not keep
   * it. Throws a {@linkcode PageTooLargeError} for one that may be smaller with fewer items.
   */
  async listPage(
    options: Selection & {
      /** Maximum number of items. */
      readonly limit?: number | undefined;
      /** The token from the previous page. */
      readonly continue?: string | undefined;
      readonly signal: AbortSignal;
    },
    onItem: (raw: unknown) => void,
  ): Promise<ListMeta> {
    using call = new LinkedAbort(options.signal);
    using _limit = this.#limit(call);
    const response = await this.#send({
      method: "GET",
      path: options.path,
      query: {
        labelSelector: options.labelSelector,
        fieldSelector: options.fieldSelector,
        limit: options.limit?.toString(),
        continue: options.continue,
      },
      mayBeProtobuf: options.protobufKind !== undefined,
      signal: call.signal,
    });
    const page = await readPage(response);
    const items = isProtobuf(response)
      ? protobufItems(page, options.protobufKind ?? "")
      : jsonItems(new TextDecoder().decode(page));
    const slice = new TimeSlice(this.edges.clock);
    for (;;) {
      call.signal.throwIfAborted();
      const { done, value } = items.next();
      if (done) return value;
      if (value !== undefined) onItem(value);
      const pause = slice.pause();
      if (pause) await pause;
    }
  }

  /** Returns the current version of the server, by a list of one object. */
  async currentVersion(
    options: Selection & { readonly signal: AbortSignal },
  ): Promise<string | undefined> {
    return (await this.listPage({ ...options, limit: 1 }, () => {})).resourceVersion;
  }

  /** Opens a watch, which ends when the loop over its events ends. */
  async watch(
    options: Selection & {
      /** Events after this version; absent together with `sendInitialEvents`. */
      readonly resourceVersion?: string | undefined;
      /** Whether the watch begins with all existing objects and a bookmark: a streaming list. */
      readonly sendInitialEvents?: boolean;
      /** The server ends the watch after this time. */
      readonly timeoutSeconds: number;
      readonly signal: AbortSignal;
    },
  ): Promise<AsyncGenerator<Iterable<WatchEvent>, void, void>> {
    // Not disposed of: the body follows it. The limit ends once the watch is accepted.
    const call = new LinkedAbort(options.signal);
    using _limit = this.#limit(call);
    const response = await this.#send({
      method: "GET",
      path: options.path,
      query: {
        watch: "true",
        allowWatchBookmarks: "true",
        labelSelector: options.labelSelector,
        fieldSelector: options.fieldSelector,
        resourceVersion: options.resourceVersion,
        timeoutSeconds: options.timeoutSeconds.toString(),
        ...(options.sendInitialEvents
          ? { sendInitialEvents: "true", resourceVersionMatch: "NotOlderThan" }
          : {}),
      },
      mayBeProtobuf: options.protobufKind !== undefined,
      signal: call.signal,
    });
    return decodeWatch(response.body, isProtobuf(response) ? options.protobufKind : undefined);
  }

  async #sendForObject(request: ApiRequest): Promise<unknown> {
    using call = new LinkedAbort(request.signal);
    using _limit = this.#limit(call);
    const { body } = await this.#send({ ...request, signal: call.signal });
    const text = new TextPieces(MAX_OBJECT);
    for await (const chunk of body) text.append(chunk);
    return parseJson(text.take());
  }

  /** Aborts a request whose answer, with its body, does not end in time. */
  #limit(call: LinkedAbort): Disposable {
    const { clock, answerMs = ANSWER_MS } = this.edges;
    return new Watchdog(clock, answerMs, () => {
      const text = `its answer did not end within ${answerMs} ms`;
      call.abort(new TransportError("frozen", `Cannot read from ${this.#host}: ${text}`));
    });
  }

  /**
   * Sends a request. After a 401, reads the credentials again and retries once; if the server
   * refuses protobuf, requests JSON.
   */
  async #send(request: ApiRequest): Promise<HttpResponse> {
    let isRefreshed = false;
    for (;;) {
      const mayBeProtobuf = request.mayBeProtobuf === true && !this.#jsonOnly.has(request.path);
      const response = await this.#sendOnce({ ...request, mayBeProtobuf });
      const { status } = response;
      if (status >= 200 && status < 300 || status === request.accepts) return response;
      const error = await toApiError(request, response);
      if (mayBeProtobuf && error.isMediaTypeRefused()) {
        this.#jsonOnly.add(request.path);
      } else {
        if (!error.isUnauthorized() || isRefreshed) throw error;
        isRefreshed = true;
        await this.edges.auth.refresh();
      }
    }
  }

  async #sendOnce(
    { method, path, query, body, mayBeProtobuf, signal }: ApiRequest,
  ): Promise<HttpResponse> {
    const headers: Record<string, string> = {
      accept: mayBeProtobuf ? `${PROTOBUF}, ${JSON_TYPE}` : JSON_TYPE,
      "user-agent": "kube-relay",
    };
    const authorization = await this.edges.auth.authorization();
    if (authorization !== undefined) headers.authorization = authorization;
    if (body !== undefined) headers["content-type"] = CONTENT_TYPES[method];
    const parts = { method, path: this.#prefix + path + queryText(query), headers, signal };
    const request = body === undefined ? parts : { ...parts, body };
    const started = this.edges.clock.now();
    const report = (status: number | undefined) => {
      const seconds = (this.edges.clock.now() - started) / 1000;
      const host = this.#host;
      this.edges.onAnswer?.({
        method,
        host,
        status,
        ...(query?.watch === undefined && { seconds }),
      });
    };
    try {
      const response = await this.edges.transport.request(request);
      report(response.status);
      return response;
    } catch (error) {
      if (!signal.aborted) report(undefined);
      throw error;
    }
  }
}

function queryText(query: ApiRequest["query"] = {}): string {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined) parameters.set(name, value);
  }
  const text = parameters.toString();
  return text === "" ? "" : `?${text}`;
}

/** Longest error body; a proxy may send a page of HTML. */
const LONGEST_ERROR_BODY = 64 * 1024;

/** Reads the beginning of an error body, as text or as the `Status` that it is in protobuf. */
async function toApiError(request: ApiRequest, response: HttpResponse): Promise<ApiError> {
  const pieces = new TextPieces(LONGEST_ERROR_BODY);
  for await (const chunk of response.body) {
    pieces.append(chunk.subarray(0, LONGEST_ERROR_BODY - pieces.length));
    if (pieces.length === LONGEST_ERROR_BODY) break;
  }
  let found: unknown;
  if (isProtobuf(response)) {
    found = tryReadStatus(pieces.takeBytes());
  } else {
    const text = pieces.take();
    try {
      found = parseJson(text) ?? text;
    } catch {
      found = text;
    }
  }
  const { method, path, query } = request;
  const verb = method === "GET" ? query?.watch ? "watch" : "read" : VERBS[method];
  const seconds = Number(response.retryAfter);
  return apiErrorFromStatus(found, {
    action: `${verb} ${path}`,
    httpStatus: response.status,
    retryAfterMs: seconds > 0 ? seconds * 1000 : undefined,
  });
}

/** For messages; the query distinguishes the kinds of GET. */
const VERBS = { POST: "create", PATCH: "patch" } as const;

/** Whether an answer is in protobuf. */
function isProtobuf({ contentType = "" }: HttpResponse): boolean {
  return contentType.split(";")[0]!.trim().toLowerCase() === PROTOBUF;
}

/** The least that a chunk counts: its own memory, however small it is. */
const CHUNK_COST = 512;

/** Joined once: to let a buffer grow takes a tenth of the time of reading a list. */
async function readPage({ body }: HttpResponse): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  let cost = 0;
  for await (const chunk of body) {
    chunks.push(chunk);
    cost += Math.max(chunk.length, CHUNK_COST);
    if (cost <= MAX_PAGE) continue;
    throw new PageTooLargeError(`Cannot read list: a page has more than ${MAX_PAGE} bytes`);
  }
  return Buffer.concat(chunks);
}
