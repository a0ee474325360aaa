/**
 * A Kubernetes API server for tests: HTTP/2 with TLS (or plain HTTP/1.1), lists in pages, watches, selectors,
 * bookmarks, streaming lists, compaction. It can fail in every way in which the real one does.
 * `tests/conformance` runs one suite on it and on the real API machinery.
 */
import type { PemPair, RawObject } from "../../conformance/server.ts";
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

/** A port of a node, as {@linkcode FakeApiServer.nodePort} has it. */
const NODE_PROXY = /^\/api\/v1\/nodes\/http:([^/:]+):(\d+)\/proxy\/(.*)$/;
/** As a path for {@linkcode FakeApiServer.setMissing}. */
export const NODE_PROXIES = "/api/v1/nodes/proxy";

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
  /**
   * The answer of a port of a node, which the server passes on; `undefined` = no connection. A
   * `status` of 0 never answers.
   */
  nodePort: (
    node: string,
    port: number,
    path: string,
  ) => { readonly status?: number; readonly text: string } | undefined = () => undefined;
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
      const { pathname: path, searchParams: query } = new URL(request.url ?? "/", "http://fake");
      const { method = "", headers: { authorization } } = request;
      this.requests.push({ method, path, query: Object.fromEntries(query), authorization });
      if (["/readyz", "/livez", "/healthz"].includes(path)) return void response.end("ok");
      try {
        const answer = this.#answer(request, path, query, body);
        if (typeof answer === "function") answer(response);
        else sendJson(response, ...answer);
      } catch (error) {
        if (!(error instanceof FakeStoreError)) throw error;
        const { status: code, reason, message, retryAfterSeconds: seconds } = error;
        if (seconds !== undefined) response.setHeader("retry-after", String(seconds));
        const status = { kind: "Status", apiVersion: "v1", metadata: {}, status: "Failure" };
        sendJson(response, code, { ...status, message, reason, code });
      }
    });
  }

  /** Returns status and body, or what sends a watch. */
  #answer(
    request: FakeHttpRequest,
    path: string,
    query: URLSearchParams,
    body: string,
  ): readonly [status: number, value: unknown] | ((response: FakeHttpResponse) => void) {
    const isWatch = query.get("watch") === "true" || query.get("watch") === "1";
    const planned = this.#failures.find(({ failure, left }) =>
      left > 0 && path.startsWith(failure.path ?? "/") &&
      (failure.watch === undefined || failure.watch === isWatch) &&
      (failure.query === undefined || query.has(failure.query))
    );
    if (planned) {
      planned.left--;
      const { status, reason, message = "fake failure", retryAfterSeconds } = planned.failure;
      throw new FakeStoreError(status, reason, message, retryAfterSeconds);
    }
    if (!this.#isAuthorized(request)) throw new FakeStoreError(401, "Unauthorized", "Unauthorized");
    if (path === "/version") return [200, { major: "1", minor: "36" }];
    const [, node, port, rest] = NODE_PROXY.exec(path) ?? [];
    const missing = this.#missing.get(node === undefined ? path : NODE_PROXIES);
    if (missing) {
      const [reason, message] = MISSING[missing];
      throw new FakeStoreError(missing, reason, message);
    }
    if (node !== undefined) {
      return this.#passOn(this.nodePort(node, Number(port), `/${rest}`), port);
    }
    const { method, headers: { "content-type": contentType } } = request;
    if (method === "POST" && path === ACCESS_REVIEW_PATH) return this.#reviewAccess(body);
    const target = findTarget(path);
    // No server is registered for the group, so the answer is no Status.
    if (target === "unknown group") return [404, { paths: ["/readyz"] }];
    if (!target) throw new FakeStoreError(404, ...MISSING[404]);
    if (method === "POST") {
      const { kind, apiVersion } = target.collection;
      const object = parsed<RawObject>(body, "couldn't get version/kind; json parse error");
      return [201, this.store.create({ ...object, kind, apiVersion })];
    }
    if (method === "PATCH") return [200, this.#patch(target, body, contentType)];
    if (target.name !== undefined) return [200, this.#get(target)];
    const selector = this.#selector(target, query);
    if (!isWatch) return [200, this.#lists.answer(target.collection, query, selector)];
    this.#checkWatch(query);
    return (response) => this.#watch(response, target.collection, query, selector);
  }

  #passOn(answer: ReturnType<FakeApiServer["nodePort"]>, port: string | undefined) {
    if (answer === undefined) {
      const message = `error trying to reach service: dial tcp 192.0.2.1:${port}: connect: refused`;
      throw new FakeStoreError(503, "ServiceUnavailable", message);
    }
    return (response: FakeHttpResponse) => {
      if (answer.status === 0) return;
      response.writeHead(answer.status ?? 200, { "content-type": "text/plain" });
      response.end(answer.text);
    };
  }

  #isAuthorized(request: FakeHttpRequest): boolean {
    if (this.#token === undefined && this.#clientName === undefined) return true;
    if (this.#token && request.headers.authorization === `Bearer ${this.#token}`) return true;
    return this.#clientName !== undefined && clientNameOf(request) === this.#clientName;
  }

  /** Whether requests to the path of a collection are refused is what a review tells. */
  #reviewAccess(body: string): readonly [status: number, value: unknown] {
    const invalid = "spec.resourceAttributes: Invalid value";
    const review = parsed<{
      readonly kind?: string;
      readonly spec?: { readonly resourceAttributes?: Readonly<Record<string, string>> };
    }>(body, invalid);
    const { verb, group = "", resource, version = "v1" } = review.spec?.resourceAttributes ?? {};
    if (review.kind !== "SelfSubjectAccessReview" || !verb || !resource) {
      throw new FakeStoreError(422, "Invalid", invalid);
    }
    const path = `${group === "" ? "/api" : `/apis/${group}`}/${version}/${resource}`;
    const allowed = this.#missing.get(path) !== 403 && !this.deniedAccess.has(`${verb} ${path}`);
    // A real server omits `denied` unless an authorizer forbids an access that others may still
    // allow.
    return [201, { ...review, status: { allowed, ...(!allowed && { reason: "" }) } }];
  }

  #patch(target: Target, body: string, contentType: string | undefined): RawObject {
    if (contentType !== "application/merge-patch+json") {
      const message = `the body of the request was in an unknown format: ${contentType}`;
      throw new FakeStoreError(415, "UnsupportedMediaType", message);
    }
    const object = this.#get(target);
    const patch = parsed<RawObject>(body, "error decoding patch: unexpected end of JSON input");
    const { resourceVersion } = object.metadata;
    if ((patch.metadata?.resourceVersion ?? resourceVersion) !== resourceVersion) {
      const { collection: { kind }, name } = target;
      const message = `Operation cannot be fulfilled on ${kind} "${name}": the object has been ` +
        "modified; please apply your changes to the latest version and try again";
      throw new FakeStoreError(409, "Conflict", message);
    }
    const change = target.isStatus ? { status: patch.status } : patch;
    return this.store.update(mergePatch(object, change) as RawObject);
  }

  #get({ collection, namespace, name }: Target): RawObject {
    const key = namespace === undefined ? name! : `${namespace}/${name}`;
    const object = this.store.get(collection, key);
    if (object) return object;
    const message = `${collection.path.split("/").at(-1)} "${name}" not found`;
    throw new FakeStoreError(404, "NotFound", message);
  }

  #selector({ collection: { kind }, namespace }: Target, query: URLSearchParams): Selector {
    try {
      const { clusterIpSelector } = this;
      const labels = parseLabelSelector(query.get("labelSelector"));
      const fields = parseFieldSelector(query.get("fieldSelector"), { kind, clusterIpSelector });
      return (object) =>
        labels(object) && fields(object) &&
        (namespace === undefined || object.metadata.namespace === namespace);
    } catch (error) {
      const message = error instanceof Error ? error.message : String(error);
      throw new FakeStoreError(400, "BadRequest", message);
    }
  }

  #checkWatch(query: URLSearchParams): void {
    const refuse = (message: string): never => {
      throw new FakeStoreError(422, "Invalid", message);
    };
    const match = query.get("resourceVersionMatch");
    if (query.get("sendInitialEvents") === null) {
      if (match !== null) {
        refuse(
          "resourceVersionMatch: Forbidden: forbidden for watch unless sendInitialEvents is provided",
        );
      }
    } else if (this.streamingLists === "invalid") {
      refuse(
        "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the " +
          "WatchList feature gate is enabled",
      );
    } else if (match !== "NotOlderThan") {
      refuse(
        "resourceVersionMatch: Forbidden: sendInitialEvents requires setting " +
          "resourceVersionMatch to NotOlderThan",
      );
    }
    const version = query.get("resourceVersion");
    if (version && !/^\d+$/.test(version)) {
      throw new FakeStoreError(500, undefined, `Invalid value: "${version}"`);
    }
  }

  #watch(
    response: FakeHttpResponse,
    collection: Collection,
    query: URLSearchParams,
    selector: Selector,
  ): void {
    const sendInitialEvents = query.get("sendInitialEvents") === "true";
    const version = query.get("resourceVersion");
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
}

/** The path at which reviews of access are created. */
export const ACCESS_REVIEW_PATH = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/** The object or collection that a path names. */
interface Target {
  readonly collection: Collection;
  readonly namespace: string | undefined;
  readonly name: string | undefined;
  /** Whether only the status of the object is meant. */
  readonly isStatus: boolean;
}

const MISSING = {
  404: ["NotFound", "the server could not find the requested resource"],
  403: ["Forbidden", 'forbidden: User "kube-relay" cannot list resource'],
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

/** A client that goes away leaves a part of its request, which is refused with this message. */
function parsed<T>(body: string, message: string): T {
  try {
    return JSON.parse(body) as T;
  } catch {
    throw new FakeStoreError(400, "BadRequest", message);
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
