/**
 * A Kubernetes API server for tests: HTTP/2 with TLS (or plain HTTP/1.1), lists in pages, watches, selectors,
 * bookmarks, streaming lists, compaction. It can fail in every way in which the real one does.
 * `tests/conformance` runs one suite on it and on the real API machinery.
 *
 * @module
 */
import type { PemPair, RawObject } from "../../conformance/server.ts";
import { ACCESS_REVIEW_PATH, answerAccessReview } from "./fake_access_review.ts";
import { FakeApiLists } from "./fake_api_list.ts";
import { type Collection, COLLECTIONS, FakeApiStore, FakeStoreError } from "./fake_api_store.ts";
import { FakeWatch } from "./fake_api_watch.ts";
import { parseFieldSelector, parseLabelSelector, type Selector } from "./fake_selectors.ts";
import {
  clientNameOf,
  type FakeHttpRequest,
  type FakeHttpResponse,
  FakeHttpServer,
  type FakeHttpServerOptions,
} from "./fake_http_server.ts";

/** An answer that is given instead of the right one. */
export interface FakeFailure {
  readonly status: number;
  readonly reason?: string;
  readonly message?: string;
  readonly retryAfterSeconds?: number;
  /** Only requests to paths that begin so. @default {"/"} */
  readonly path?: string;
  /** Only watches, or only other requests. */
  readonly watch?: boolean;
  /** Only requests that have this query parameter. */
  readonly query?: string;
  /** The number of requests that fail. @default {1} */
  readonly times?: number;
}

/** One request as it came in. */
export interface FakeRequest {
  readonly method: string;
  readonly path: string;
  readonly query: Readonly<Record<string, string>>;
  readonly authorization: string | undefined;
}

/** The fake. Its properties may be changed at any time. */
export class FakeApiServer implements AsyncDisposable {
  readonly store = new FakeApiStore();
  /** Every request since the start. */
  readonly requests: FakeRequest[] = [];
  /**
   * The answer to a streaming list. Older servers refuse it at once; an old etcd sends an ERROR
   * event.
   */
  streamingLists: "served" | "invalid" | "error event" | "never ending" = "served";
  /** Whether Services can be selected by `spec.clusterIP` (since 1.31). */
  clusterIpSelector = true;
  /**
   * The accesses that reviews deny, e.g. `watch /api/v1/pods`, besides those that get status 403.
   */
  readonly deniedAccess = new Set<string>();
  /** Whether watches end at the time that they were asked for. */
  endsWatches = true;
  readonly #http: FakeHttpServer;
  readonly #watches = new Set<FakeWatch>();
  readonly #failures: { failure: FakeFailure; left: number }[] = [];
  readonly #missing = new Map<string, 403 | 404>();
  readonly #lists = new FakeApiLists(this.store);
  #token: string | undefined;
  #tokenCount = 0;
  #clientName: string | undefined;
  #clientCount = 0;

  private constructor(options: FakeHttpServerOptions) {
    this.#http = new FakeHttpServer(
      (request, response) => this.#handle(request, response),
      options,
    );
  }

  /** Makes certificates and listens on a free port of 127.0.0.1. */
  static async start(options: FakeHttpServerOptions = {}): Promise<FakeApiServer> {
    const server = new FakeApiServer(options);
    await server.restart();
    return server;
  }

  get port(): number {
    return this.#http.port;
  }

  get scheme(): "https" | "http" {
    return this.#http.scheme;
  }

  get url(): string {
    return `${this.scheme}://127.0.0.1:${this.port}`;
  }

  /** The CA of the server's certificate, PEM. */
  get ca(): string {
    return this.#http.ca;
  }

  /** HTTP/2 connections open now. */
  get connections(): number {
    return this.#http.connections;
  }

  /** Watches open now. */
  get openWatches(): number {
    return this.#watches.size;
  }

  /** From now on requests need this new token (or a client certificate); other requests get 401. */
  rotateToken(): string {
    return this.#token = `token-${++this.#tokenCount}`;
  }

  /** From now on requests need this new client certificate (or a token); other requests get 401. */
  async rotateClientCertificate(): Promise<PemPair> {
    this.#clientName = `client-${++this.#clientCount}`;
    return await this.#http.issueClientCertificate(this.#clientName);
  }

  /** Answers the next requests of a kind with a failure. */
  failNext(failure: FakeFailure): void {
    this.#failures.push({ failure, left: failure.times ?? 1 });
  }

  /** Answers all requests to a collection with 404 or 403, or no longer does. */
  setMissing(path: string, status: 403 | 404 | undefined): void {
    if (status === undefined) this.#missing.delete(path);
    else this.#missing.set(path, status);
  }

  /** Forgets the history: watches from an earlier version, and lists begun before, get 410. */
  compact(): void {
    this.store.compact();
    this.#lists.forget();
  }

  /** Does something to every open watch. */
  forEachWatch(action: (watch: FakeWatch) => void, path?: string): void {
    for (const watch of [...this.#watches]) {
      if (path === undefined || watch.collection.path === path) action(watch);
    }
  }

  /** Sends GOAWAY on every connection; open streams continue. */
  goaway(): void {
    this.#http.goaway();
  }

  /** Ends at once, as kill -9 does. */
  async kill(): Promise<void> {
    for (const watch of this.#watches) watch.forget();
    this.#watches.clear();
    await this.#http.kill();
  }

  /** Starts again at the same port. */
  async restart(): Promise<void> {
    await this.#http.start();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
  }

  #handle(request: FakeHttpRequest, response: FakeHttpResponse): void {
    const chunks: Uint8Array[] = [];
    request.on("data", (chunk: Uint8Array) => chunks.push(chunk));
    request.on("error", () => {});
    response.on("error", () => {});
    request.on("end", async () => {
      const body = await new Blob(chunks as BlobPart[]).text();
      const { pathname: path, searchParams } = new URL(request.url ?? "/", "http://fake");
      const query = Object.fromEntries(searchParams);
      const { method = "", headers: { authorization } } = request;
      this.requests.push({ method, path, query, authorization });
      try {
        this.#answer({ request, response, path, query: searchParams, body });
      } catch (error) {
        if (!(error instanceof FakeStoreError)) throw error;
        const { status, reason, message } = error;
        sendStatus(response, { status, reason, message });
      }
    });
  }

  #answer(
    { request, response, path, query, body }: {
      readonly request: FakeHttpRequest;
      readonly response: FakeHttpResponse;
      readonly path: string;
      readonly query: URLSearchParams;
      readonly body: string;
    },
  ): void {
    if (["/readyz", "/livez", "/healthz"].includes(path)) return void response.end("ok");
    const isWatch = query.get("watch") === "true" || query.get("watch") === "1";
    const failure = this.#takeFailure(path, { query, isWatch });
    if (failure) return sendStatus(response, failure);
    if (!this.#isAuthorized(request)) {
      return sendStatus(response, { status: 401, reason: "Unauthorized", message: "Unauthorized" });
    }
    if (path === "/version") return sendJson(response, 200, { major: "1", minor: "36" });
    const missing = this.#missing.get(path);
    if (missing) return sendStatus(response, { status: missing, ...MISSING[missing] });
    if (request.method === "POST" && path === ACCESS_REVIEW_PATH) {
      return this.#reviewAccess(response, body);
    }
    const target = findTarget(path);
    // No server is registered for the group, so the answer is no Status.
    if (target === "unknown group") return sendJson(response, 404, { paths: ["/readyz"] });
    if (!target) return sendStatus(response, { status: 404, ...MISSING[404] });
    if (request.method === "POST") return this.#create(response, { target, body });
    if (request.method === "PATCH") {
      const contentType = request.headers["content-type"];
      return this.#patch(response, { target, body, contentType });
    }
    if (target.name !== undefined) return this.#get(response, target);
    const selector = this.#selector(response, { target, query });
    if (!selector) return;
    if (isWatch) this.#watch(response, { target, query, selector });
    else this.#list(response, { target, query, selector });
  }

  #reviewAccess(response: FakeHttpResponse, body: string): void {
    const isForbidden = (collection: string, verb: string) =>
      this.#missing.get(collection) === 403 || this.deniedAccess.has(`${verb} ${collection}`);
    const review = answerAccessReview(body, isForbidden);
    if (review) return sendJson(response, 201, review);
    const message = "spec.resourceAttributes: Invalid value";
    sendStatus(response, { status: 422, reason: "Invalid", message });
  }

  #takeFailure(
    path: string,
    { query, isWatch }: { readonly query: URLSearchParams; readonly isWatch: boolean },
  ): FakeFailure | undefined {
    const entry = this.#failures.find(({ failure, left }) =>
      left > 0 && path.startsWith(failure.path ?? "/") &&
      (failure.watch === undefined || failure.watch === isWatch) &&
      (failure.query === undefined || query.has(failure.query))
    );
    if (entry) entry.left--;
    return entry?.failure;
  }

  #isAuthorized(request: FakeHttpRequest): boolean {
    if (this.#token === undefined && this.#clientName === undefined) return true;
    if (this.#token && request.headers.authorization === `Bearer ${this.#token}`) return true;
    return this.#clientName !== undefined && clientNameOf(request) === this.#clientName;
  }

  #create(response: FakeHttpResponse, { target, body }: { target: Target; body: string }): void {
    const { kind, apiVersion } = target.collection;
    const object = parseBody(body);
    if (object) return sendJson(response, 201, this.store.create({ ...object, kind, apiVersion }));
    const message = "couldn't get version/kind; json parse error";
    sendStatus(response, { status: 400, reason: "BadRequest", message });
  }

  #patch(
    response: FakeHttpResponse,
    { target, body, contentType }: {
      readonly target: Target;
      readonly body: string;
      readonly contentType: string | undefined;
    },
  ): void {
    if (contentType !== "application/merge-patch+json") {
      const message = `the body of the request was in an unknown format: ${contentType}`;
      return sendStatus(response, { status: 415, reason: "UnsupportedMediaType", message });
    }
    const { collection, namespace, name, isStatus } = target;
    const key = namespace === undefined ? name! : `${namespace}/${name}`;
    const object = this.store.get(collection, key);
    if (object === undefined) return this.#get(response, target);
    const patch = JSON.parse(body);
    const { resourceVersion } = object.metadata;
    if ((patch.metadata?.resourceVersion ?? resourceVersion) !== resourceVersion) {
      const message = `Operation cannot be fulfilled on ${collection.kind} "${name}": the object ` +
        "has been modified; please apply your changes to the latest version and try again";
      return sendStatus(response, { status: 409, reason: "Conflict", message });
    }
    const change = isStatus ? { status: patch.status } : patch;
    sendJson(response, 200, this.store.update(mergePatch(object, change) as RawObject));
  }

  #get(response: FakeHttpResponse, { collection, namespace, name }: Target): void {
    const key = namespace === undefined ? name! : `${namespace}/${name}`;
    const object = this.store.get(collection, key);
    if (object) return sendJson(response, 200, object);
    const message = `${collection.path.split("/").at(-1)} "${name}" not found`;
    sendStatus(response, { status: 404, reason: "NotFound", message });
  }

  #selector(
    response: FakeHttpResponse,
    { target: { collection, namespace }, query }: { target: Target; query: URLSearchParams },
  ): Selector | undefined {
    try {
      const labels = parseLabelSelector(query.get("labelSelector"));
      const fields = parseFieldSelector(query.get("fieldSelector"), {
        kind: collection.kind,
        clusterIpSelector: this.clusterIpSelector,
      });
      return (object) =>
        labels(object) && fields(object) &&
        (namespace === undefined || object.metadata.namespace === namespace);
    } catch (error) {
      const message = error instanceof Error ? error.message : String(error);
      sendStatus(response, { status: 400, reason: "BadRequest", message });
      return undefined;
    }
  }

  #list(
    response: FakeHttpResponse,
    { target: { collection }, query, selector }: Selected,
  ): void {
    const answer = this.#lists.answer(collection, { query, selector });
    if ("list" in answer) sendJson(response, 200, answer.list);
    else sendStatus(response, answer);
  }

  #watch(response: FakeHttpResponse, { target: { collection }, query, selector }: Selected): void {
    const sendInitialEvents = query.get("sendInitialEvents") === "true";
    const refusal = this.#watchRefusal(query);
    if (refusal) return sendStatus(response, { status: 422, reason: "Invalid", message: refusal });
    const version = query.get("resourceVersion");
    if (version && !/^\d+$/.test(version)) {
      return sendStatus(response, { status: 500, message: `Invalid value: "${version}"` });
    }
    response.writeHead(200, { "content-type": "application/json" });
    // The headers of a real server come at once, even when there is no event for hours.
    response.flushHeaders?.();
    const watch = new FakeWatch(
      this.store,
      { write: (text) => void response.write(text), end: () => void response.end("") },
      {
        collection,
        selector,
        resourceVersion: version ? Number(version) : undefined,
        sendInitialEvents: sendInitialEvents && this.streamingLists !== "never ending",
        bookmarks: query.get("allowWatchBookmarks") === "true",
        timeoutSeconds: this.endsWatches ? Number(query.get("timeoutSeconds") ?? 1800) : 1e6,
      },
    );
    this.#watches.add(watch);
    response.on("close", () => {
      watch.forget();
      this.#watches.delete(watch);
    });
    if (sendInitialEvents && this.streamingLists === "error event") {
      watch.sendError({
        code: 500,
        reason: "InternalError",
        message: "etcd event received with PrevKv=nil (required storage feature " +
          "RequestWatchProgress is disabled)",
      });
      return watch.end();
    }
    watch.start();
  }

  #watchRefusal(query: URLSearchParams): string | undefined {
    const match = query.get("resourceVersionMatch");
    if (query.get("sendInitialEvents") === null) {
      return match === null ? undefined : "resourceVersionMatch: Forbidden: forbidden for watch " +
        "unless sendInitialEvents is provided";
    }
    if (this.streamingLists === "invalid") {
      return "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the " +
        "WatchList feature gate is enabled";
    }
    if (match !== "NotOlderThan") {
      return "resourceVersionMatch: Forbidden: sendInitialEvents requires setting " +
        "resourceVersionMatch to NotOlderThan";
    }
    return undefined;
  }
}

/** The object or collection that a path names. */
interface Target {
  readonly collection: Collection;
  readonly namespace: string | undefined;
  readonly name: string | undefined;
  /** Whether only the status of the object is meant. */
  readonly isStatus: boolean;
}

interface Selected {
  readonly target: Target;
  readonly query: URLSearchParams;
  readonly selector: Selector;
}

const MISSING = {
  404: { reason: "NotFound", message: "the server could not find the requested resource" },
  403: { reason: "Forbidden", message: 'forbidden: User "kube-relay" cannot list resource' },
} as const;

function findTarget(path: string): Target | "unknown group" | undefined {
  for (const collection of COLLECTIONS) {
    const at = collection.path.lastIndexOf("/");
    const [root, plural] = [collection.path.slice(0, at), collection.path.slice(at + 1)];
    const inner = collection.namespaced ? "(?:/namespaces/([^/]+))?" : "()";
    const match = new RegExp(`^${root}${inner}/${plural}(?:/([^/]+)(/status)?)?$`).exec(path);
    if (!match) continue;
    const [, namespace, name, status] = match;
    return { collection, namespace: namespace || undefined, name, isStatus: status !== undefined };
  }
  const isKnown = COLLECTIONS.some((known) => groupOf(known.path) === groupOf(path));
  return isKnown ? undefined : "unknown group";
}

/** `/api/v1` or `/apis/GROUP/VERSION`. */
function groupOf(path: string): string {
  return path.split("/").slice(0, path.startsWith("/apis/") ? 4 : 3).join("/");
}

function parseBody(body: string): RawObject | undefined {
  try {
    return JSON.parse(body) as RawObject;
  } catch {
    return undefined;
  }
}

/** RFC 7386. */
function mergePatch(target: unknown, patch: unknown): unknown {
  if (typeof patch !== "object" || patch === null || Array.isArray(patch)) return patch;
  const merged: Record<string, unknown> = { ...(target as object | undefined) };
  for (const [name, value] of Object.entries(patch)) {
    if (value === null) delete merged[name];
    else merged[name] = mergePatch(merged[name], value);
  }
  return merged;
}

function sendJson(response: FakeHttpResponse, status: number, value: unknown): void {
  response.writeHead(status, { "content-type": "application/json" });
  response.end(JSON.stringify(value));
}

function sendStatus(
  response: FakeHttpResponse,
  failure: Pick<FakeFailure, "status" | "reason" | "message" | "retryAfterSeconds">,
): void {
  const { status, reason, message = "fake failure", retryAfterSeconds } = failure;
  if (retryAfterSeconds !== undefined) response.setHeader("retry-after", String(retryAfterSeconds));
  sendJson(response, status, {
    kind: "Status",
    apiVersion: "v1",
    metadata: {},
    status: "Failure",
    message,
    reason,
    code: status,
  });
}
