import { assertEquals, assertRejects } from "@std/assert";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import { FakeApiServer } from "../../tests/support/fakes/fake_api_server.ts";
import { StaticAuth } from "../../tests/support/builders/static_auth.ts";
import { type Clock, systemClock } from "../os/clock.ts";
import { ApiError } from "./api_error.ts";
import { KubeClient } from "./client.ts";
import { MAX_PAGE, PageTooLargeError } from "./list_page.ts";
import { openTransport } from "./api_transport.ts";
import { type HttpRequest, TransportError } from "./transport.ts";

const signal = new AbortController().signal;
const SERVICES = "/api/v1/services";

interface Stage {
  readonly fake: FakeApiServer;
  readonly auth: StaticAuth;
  readonly client: KubeClient;
}

async function withClient(
  run: (stage: Stage) => Promise<void>,
  { prefix = "" }: { readonly prefix?: string } = {},
): Promise<void> {
  await using fake = await FakeApiServer.start();
  const auth = new StaticAuth(fake.url + prefix, { ca: fake.ca });
  await using transport = openTransport(systemClock, auth);
  await run({ fake, auth, client: new KubeClient({ clock: systemClock, auth, transport }) });
}

function service(name: string) {
  const metadata = { name, namespace: "default" };
  return { apiVersion: "v1", kind: "Service", metadata, spec: { clusterIP: "10.0.0.1" } };
}

Deno.test("KubeClient reads, creates and patches objects, and rejects for what is missing or there already", () =>
  withClient(async ({ fake, client }) => {
    const path = "/api/v1/namespaces/default/services";
    fake.store.create(service("web"));
    assertEquals((await client.get(`${path}/web`, signal) as { kind: string }).kind, "Service");
    const patch = { spec: { type: "NodePort" } };
    const patched = await client.patch(`${path}/web`, patch, signal) as { spec: unknown };
    assertEquals(patched.spec, { clusterIP: "10.0.0.1", type: "NodePort" });
    const created = await client.create(path, service("db"), signal);
    assertEquals((created as { metadata: { name: string } }).metadata.name, "db");
    const again = await assertRejects(() => client.create(path, service("db"), signal), ApiError);
    assertEquals([again.status, again.reason], [409, "AlreadyExists"]);
    const none = () => client.get(`${path}/none`, signal);
    assertEquals((await assertRejects(none, ApiError, '"none" not found')).isNotFound(), true);
    const refused = () => client.patch(`${path}/none`, patch, signal);
    assertEquals((await assertRejects(refused, ApiError)).isNotFound(), true);
  }));

Deno.test("KubeClient reads its credentials again after a 401, and asks once more", () =>
  withClient(async ({ fake, client, auth }) => {
    auth.header = "Bearer old";
    const token = fake.rotateToken();
    auth.onRefresh = () => auth.header = `Bearer ${token}`;
    await client.get("/version", signal);
    assertEquals(fake.requests.map(({ authorization }) => authorization), [
      "Bearer old",
      `Bearer ${token}`,
    ]);
  }));

async function* spaces(
  sent: { bytes: number; left: boolean },
): AsyncGenerator<Uint8Array, undefined> {
  const chunk = new Uint8Array(16 * 1024).fill(0x20);
  try {
    for (;; sent.bytes += chunk.length) yield chunk;
  } finally {
    sent.left = true;
  }
}

/** A client whose server answers with a status and this body. */
function clientOf(
  clock: Clock,
  status: number,
  body: (signal: AbortSignal) => AsyncGenerator<Uint8Array, undefined>,
  answerMs?: number,
): KubeClient {
  const transport = {
    ...{ connected: true, lastSignOfLifeMs: 0, [Symbol.asyncDispose]: () => Promise.resolve() },
    request: ({ signal }: HttpRequest) =>
      Promise.resolve({
        ...{ status, contentType: undefined, retryAfter: undefined, body: body(signal) },
      }),
  };
  const auth = new StaticAuth("http://127.0.0.1:1");
  return new KubeClient({ clock, auth, transport, ...(answerMs !== undefined && { answerMs }) });
}

/** Requests whose answer has no end, and the bytes that are read of it. */
const ENDLESS: readonly (readonly [
  status: number,
  longest: number,
  ask: (client: KubeClient) => Promise<unknown>,
])[] = [
  [200, 18 * 1024 * 1024, (client) => client.get("/version", signal)],
  [500, 64 * 1024, (client) => client.get("/version", signal)],
  [200, MAX_PAGE, (client) => client.listPage({ path: SERVICES, signal }, () => {})],
  [200, 8192, (client) => client.readLines({ path: "/x", mostBytes: 8192, signal }, () => {})],
  // One line.
  [200, 65_536, (client) => client.readLines({ path: "/x", mostBytes: 1e9, signal }, () => {})],
];

for (const [status, longest, ask] of ENDLESS) {
  Deno.test(`KubeClient leaves an answer of ${status} that has no end after ${longest} bytes`, async () => {
    const sent = { bytes: 0, left: false };
    const client = clientOf(systemClock, status, () => spaces(sent));
    const error = await assertRejects(() => ask(client), Error);
    assertEquals(error instanceof PageTooLargeError, longest === MAX_PAGE);
    assertEquals([sent.left, sent.bytes <= longest], [true, true]);
  });
}

Deno.test("KubeClient reads lines, wherever their pieces end, and the last one without an end", async () => {
  const bytes = new TextEncoder().encode("a\n\nzwölf\nlast");
  const client = clientOf(systemClock, 200, async function* () {
    for (const byte of bytes) yield await Promise.resolve(Uint8Array.of(byte));
    return undefined;
  });
  const lines: string[] = [];
  await client.readLines({ path: "/x", mostBytes: 100, signal }, (line) => lines.push(line));
  assertEquals(lines, ["a", "", "zwölf", "last"]);
});

/** The requests that wait for the end of their answer; a watch only if it is refused. */
const ANSWERS: Readonly<
  Record<string, readonly [status: number, ask: (client: KubeClient) => Promise<unknown>]>
> = {
  "an object": [200, (client) => client.get("/version", signal)],
  "a page of a list": [200, (client) => client.listPage({ path: SERVICES, signal }, () => {})],
  "the lines of a text": [
    200,
    (client) => client.readLines({ path: "/x", mostBytes: 1e9, signal }, () => {}),
  ],
  "the server's version": [200, (client) => client.currentVersion({ path: SERVICES, signal })],
  "the reason why a list is refused": [500, (client) => client.get(SERVICES, signal)],
  "the reason why a watch is refused": [
    500,
    (client) => client.watch({ path: SERVICES, timeoutSeconds: 300, signal }),
  ],
};

for (const [what, [status, ask]] of Object.entries(ANSWERS)) {
  Deno.test(`KubeClient gives up ${what} when the server falls silent within it`, async () => {
    const clock = new FakeClock();
    const client = clientOf(clock, status, silence, 20);
    const refused = assertRejects(
      () => ask(client),
      TransportError,
      "Cannot read from 127.0.0.1:1: its answer did not end within 20 ms",
    );
    await clock.advance(20);
    await refused;
  });
}

/** The beginning of a body, and then nothing until the request is aborted. */
async function* silence(signal: AbortSignal): AsyncGenerator<Uint8Array, undefined> {
  yield new TextEncoder().encode("{");
  await new Promise((_, reject) => {
    signal.addEventListener("abort", () => reject(signal.reason), { once: true });
  });
}

Deno.test("KubeClient puts the path of the server's URL before its own", () =>
  withClient(async ({ fake, client }) => {
    await assertRejects(() => client.get("/version", signal), ApiError);
    assertEquals(fake.requests.at(-1)?.path, "/k8s/clusters/c-1/version");
  }, { prefix: "/k8s/clusters/c-1/" }));

Deno.test("KubeClient reports each answer, with the time of all but watches", async () => {
  await using fake = await FakeApiServer.start();
  const auth = new StaticAuth(fake.url, { ca: fake.ca });
  await using transport = openTransport(systemClock, auth);
  const answers: string[] = [];
  const client = new KubeClient({
    clock: systemClock,
    auth,
    transport,
    onAnswer: ({ method, host, status, seconds }) => {
      assertEquals(host, new URL(fake.url).host);
      answers.push(`${method} ${status} ${seconds === undefined ? "not timed" : "timed"}`);
    },
  });
  await client.listPage({ path: SERVICES, signal }, () => {});
  await assertRejects(() => client.get(`${SERVICES}/none`, signal), ApiError);
  const events = await client.watch({ path: SERVICES, timeoutSeconds: 1, signal });
  await events.return();
  await transport[Symbol.asyncDispose]();
  await assertRejects(() => client.get("/version", signal));
  await assertRejects(() => client.get("/version", AbortSignal.abort()));
  assertEquals(answers, [
    "GET 200 timed",
    "GET 404 timed",
    "GET 200 not timed",
    "GET undefined timed",
  ]);
});
