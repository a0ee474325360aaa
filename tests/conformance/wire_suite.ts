/**
 * Compares the answers of API servers, request by request: on the fake and on the real API
 * machinery, so that a client that works with the fake works with a cluster. Compares only what a
 * client reads: status, reason, objects and events.
 */
import { assertEquals } from "@std/assert";
import type { ConformanceServer, StartConformanceServer } from "./server.ts";
import { testService } from "./test_service.ts";

/** Defines the tests for one kind of server. */
export function runWireSuite(name: string, start: StartConformanceServer): void {
  Deno.test(`The API server answers as a cluster does (${name})`, async (t) => {
    await using server = await start();
    for (const letter of "abcde") await server.create(testService(letter));
    await server.create(testService("headless", "None"));
    using wire = new Wire(server);
    wire.firstPage = await wire.page("/api/v1/services?limit=2");
    for (const [request, answer] of ANSWERS) {
      await t.step(request, async () => assertEquals(await wire.ask(request), answer));
    }
    await t.step("GET without a token", async () => {
      assertEquals(await wire.ask("GET /api/v1/services", { token: "wrong" }), "401 Unauthorized");
    });
    await server.delete(testService("b"));
    await server.compact();
    for (const [request, answer] of ANSWERS_AFTER_COMPACTION) {
      await t.step(`${request}, compacted`, async () => {
        assertEquals(await wire.ask(request), answer);
      });
    }
  });
}

const STREAMING = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
const CREATE = "POST /api/v1/namespaces/default/services";

/**
 * Requests, and the relevant part of their answers. `{continue}` and `{version}` are those of the
 * first page of two Services; `… <body>` is sent as the body.
 */
const ANSWERS: readonly (readonly [request: string, answer: string])[] = [
  ["GET /api/v1/services", "200 ServiceList a b c d e headless"],
  ["GET /api/v1/services?limit=2", "200 ServiceList a b, 4 more"],
  ["GET /api/v1/services?limit=2&continue={continue}", "200 ServiceList c d, 2 more"],
  ["GET /api/v1/services?limit=4&continue={continue}", "200 ServiceList c d e headless"],
  ["GET /api/v1/services?limit=2&continue=garbage", "400 BadRequest"],
  ["GET /api/v1/services?resourceVersion=1&continue={continue}", "400 BadRequest"],
  // From the watch cache: in one piece, whatever the limit.
  ["GET /api/v1/services?limit=2&resourceVersion=0", "200 ServiceList a b c d e headless"],
  ["GET /api/v1/services?resourceVersion=999999", "504 Timeout"],
  [
    "GET /api/v1/services?limit=2&fieldSelector=spec.clusterIP!%3DNone",
    "200 ServiceList a b, some more",
  ],
  ["GET /api/v1/services?fieldSelector=spec.clusterIP!%3DNone", "200 ServiceList a b c d e"],
  ["GET /api/v1/services?fieldSelector=metadata.name%3Dc", "200 ServiceList c"],
  ["GET /api/v1/services?fieldSelector=spec.other%3Dc", "400 BadRequest"],
  ["GET /api/v1/services?fieldSelector=garbage", "400 BadRequest"],
  ["GET /api/v1/services?labelSelector=%3D%3D", "400 BadRequest"],
  ["GET /apis/networking.k8s.io/v1/servicecidrs", "200 ServiceCIDRList"],
  ["GET /apis/networking.k8s.io/v1/unknown", "404 NotFound"],
  // No Status: no server is registered for the group.
  ["GET /apis/unknown.k8s.io/v1/unknown", "404 other"],
  ["GET /api/v1/namespaces/default/services/a", "200 Service"],
  ["GET /api/v1/namespaces/default/services/unknown", "404 NotFound"],
  [`${CREATE} ${JSON.stringify(testService("a"))}`, "409 AlreadyExists"],
  [`${CREATE} {"kind":`, "400 BadRequest"],

  [
    `GET /api/v1/services?${STREAMING}&allowWatchBookmarks=true`,
    "200 ADDED a, ADDED b, ADDED c, " +
    "ADDED d, ADDED e, ADDED headless, BOOKMARK k8s.io/initial-events-end",
  ],
  [
    `GET /apis/networking.k8s.io/v1/servicecidrs?${STREAMING}&allowWatchBookmarks=true`,
    "200 BOOKMARK k8s.io/initial-events-end",
  ],
  // Without bookmarks the end of the list is unknown.
  [`GET /api/v1/services?${STREAMING}&fieldSelector=metadata.name%3Dc`, "200 ADDED c"],
  ["GET /api/v1/services?watch=1&sendInitialEvents=true", "422 Invalid"],
  ["GET /api/v1/services?watch=1&resourceVersionMatch=NotOlderThan", "422 Invalid"],
  ["GET /api/v1/services?watch=1&resourceVersion=0&fieldSelector=metadata.name%3Dc", "200 ADDED c"],
  ["GET /api/v1/services?watch=1&fieldSelector=metadata.name%3Dc", "200 ADDED c"],
  ["GET /api/v1/services?watch=1&fieldSelector=spec.other%3Dc", "400 BadRequest"],
  // Nothing new, no bookmark: they are no sign of life.
  ["GET /api/v1/services?watch=1&resourceVersion={version}&allowWatchBookmarks=true", "200 "],
  // A watch from the future is no error. It stays silent.
  ["GET /api/v1/services?watch=1&resourceVersion=999999&allowWatchBookmarks=true", "200 "],
  ["GET /api/v1/services?watch=1&resourceVersion=garbage", "500 other"],
];

const ANSWERS_AFTER_COMPACTION: typeof ANSWERS = [
  ["GET /api/v1/services?watch=1&resourceVersion={version}", "200 ERROR 410 Expired"],
  ["GET /api/v1/services?limit=2&continue={continue}", "410 Expired"],
  ["GET /api/v1/services", "200 ServiceList a c d e headless"],
];

/** The position at which a list continues. */
interface Page {
  readonly version: string;
  readonly next: string;
}

/** A client that knows nothing of Kubernetes but how to read an answer. */
class Wire implements Disposable {
  readonly #server: ConformanceServer;
  readonly #http: Deno.HttpClient;
  firstPage: Page = { version: "", next: "" };

  constructor(server: ConformanceServer) {
    this.#server = server;
    this.#http = Deno.createHttpClient({ caCerts: [server.ca] });
  }

  /** Sends `METHOD PATH BODY`; resolves to the part of the answer that a client reads. */
  async ask(request: string, options: { readonly token?: string } = {}): Promise<string> {
    const [, method = "", target = "", body] = /^(\S+) (\S+)(?: (.*))?$/.exec(request) ?? [];
    const path = target.replace("{continue}", encodeURIComponent(this.firstPage.next))
      .replace("{version}", this.firstPage.version);
    const response = await this.#send(path, { method, body, ...options });
    const text = await response.text();
    return `${response.status} ${target.includes("watch=1") ? readWatch(text) : readAnswer(text)}`;
  }

  async page(path: string): Promise<Page> {
    const { metadata } = await (await this.#send(path, { method: "GET" })).json();
    return { version: metadata.resourceVersion, next: metadata.continue };
  }

  [Symbol.dispose](): void {
    this.#http.close();
  }

  #send(
    path: string,
    { method, body, token = this.#server.token() }: {
      readonly method: string;
      readonly body?: string | undefined;
      readonly token?: string;
    },
  ): Promise<Response> {
    // Watches end after a second, lists wait no longer for a version to come.
    const timed = path.includes("?") ? `${path}&timeoutSeconds=1` : path;
    const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
    return fetch(this.#server.url + timed, {
      client: this.#http,
      method,
      headers,
      ...(body === undefined ? {} : { body }),
    });
  }
}

/** The part of an object that is read here. */
interface Answer {
  readonly kind?: string;
  readonly reason?: string;
  readonly code?: number;
  readonly metadata?: {
    readonly name?: string;
    readonly continue?: string;
    readonly remainingItemCount?: number;
    readonly annotations?: Readonly<Record<string, string>>;
  };
  readonly items?: readonly Answer[];
}

function readAnswer(text: string): string {
  const { kind, reason, metadata, items } = parseAnswer(text);
  if (kind === "Status") return reason ?? "other";
  if (kind === undefined) return "other";
  if (items === undefined) return kind;
  const names = [kind, ...items.map((item) => item.metadata?.name)].join(" ");
  return metadata?.continue === undefined || metadata.continue === ""
    ? names
    : `${names}, ${metadata.remainingItemCount ?? "some"} more`;
}

function readWatch(text: string): string {
  const lines = text.split("\n").filter((line) => line !== "");
  if (!lines.every((line) => line.startsWith('{"type":'))) return readAnswer(text);
  return lines.map((line) => {
    const { type, object }: { type: string; object: Answer } = JSON.parse(line);
    if (type === "ERROR") return `ERROR ${object.code} ${object.reason}`;
    const { name, annotations = {} } = object.metadata ?? {};
    return [type, name ?? Object.keys(annotations).join(" ")].join(" ");
  }).join(", ");
}

function parseAnswer(text: string): Answer {
  try {
    return JSON.parse(text) as Answer;
  } catch {
    return {};
  }
}
