import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { StaticAuth } from "../../tests/support/builders/static_auth.ts";
import { createTestCertificateAuthority } from "../../tests/support/builders/test_certificates.ts";
import { TcpRelay } from "../../tests/support/drivers/tcp_relay.ts";
import { eventually } from "../../tests/support/eventually.ts";
import { FakeApiServer } from "../../tests/support/fakes/fake_api_server.ts";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import { openTransport, type TransportTiming } from "./api_transport.ts";
import type { TlsMaterial } from "./kube_auth.ts";
import { type HttpResponse, type HttpTransport, TransportError } from "./transport.ts";

const NEVER = new AbortController().signal;
const WATCH = "/api/v1/services?watch=true&resourceVersion=1000";
const PINGS = { pingAfterMs: 30_000, pingTimeoutMs: 15_000 };

interface Stage {
  readonly clock: FakeClock;
  readonly fake: FakeApiServer;
  readonly relay: TcpRelay;
  readonly auth: StaticAuth;
  readonly transport: HttpTransport;
  get(path: string, signal?: AbortSignal): Promise<HttpResponse>;
}

/** A transport, a relay and a fake server behind it. */
async function withServer(
  run: (stage: Stage) => Promise<void>,
  { timing = {}, tls, scheme = "https" }: {
    readonly timing?: TransportTiming;
    readonly tls?: Partial<TlsMaterial>;
    readonly scheme?: "https" | "http";
  } = {},
): Promise<void> {
  await using fake = await FakeApiServer.start({ scheme });
  await using relay = await TcpRelay.start(fake.port);
  const clock = new FakeClock();
  const server = `${scheme}://127.0.0.1:${relay.port}`;
  const auth = new StaticAuth(server, scheme === "http" ? {} : { ca: fake.ca, ...tls });
  await using transport = openTransport(clock, auth, timing);
  const get = (path: string, signal = NEVER) =>
    transport.request({ method: "GET", path, headers: {}, signal });
  await run({ clock, fake, relay, auth, transport, get });
}

async function textOf({ body }: HttpResponse): Promise<string> {
  return await new Blob(await Array.fromAsync(body) as BlobPart[]).text();
}

for (const scheme of ["https", "http"] as const) {
  const wire = scheme === "https" ? "HTTP/2" : "HTTP/1";

  Deno.test(`${wire} transport: request() gives status, body and a sign of life`, () =>
    withServer(async ({ clock, relay, get, transport }) => {
      assertEquals([transport.connected, transport.lastSignOfLifeMs], [false, undefined]);
      await clock.advance(7);
      const answers = await Promise.all([get("/readyz"), get("/version"), get("/nothing")]);
      assertEquals(answers.map(({ status }) => status), [200, 200, 404]);
      assertEquals(await textOf(answers[0]!), "ok");
      for (const answer of answers.slice(1)) await textOf(answer);
      assertEquals(transport.lastSignOfLifeMs, 7);
      if (scheme === "https") assertEquals([relay.accepted, transport.connected], [1, true]);
    }, { scheme }));

  Deno.test(`${wire} transport ends a body when its reader leaves, and by the signal`, () =>
    withServer(async ({ fake, get, relay, transport }) => {
      const first = await get(WATCH);
      fake.forEachWatch((watch) => watch.sendRaw("hello\n"));
      for await (const _ of first.body) break;
      await eventually("the server sees the end", () => fake.openWatches === 0);
      const controller = new AbortController();
      const second = await get(WATCH, controller.signal);
      assertEquals(transport.connected, true);
      const reading = second.body.next();
      controller.abort(new RangeError("enough"));
      await assertRejects(() => reading, RangeError, "enough");
      await eventually("the server sees the end", () => fake.openWatches === 0);
      assertEquals(transport.connected, scheme === "https");
      if (scheme === "https") assertEquals(relay.accepted, 1);
    }, { scheme }));

  Deno.test(`${wire} transport: request() gives up an answer that does not come`, () =>
    withServer(async ({ clock, relay, get }) => {
      await textOf(await get("/version"));
      relay.freezeOpen();
      relay.swallowNew(scheme === "http");
      const timers = clock.pendingTimers;
      const refused = assertRejects(
        () => get("/version"),
        TransportError,
        "no answer within 20000 ms",
      );
      await eventually("the answer is waited for", () => clock.pendingTimers > timers);
      await clock.advance(20_000);
      assertEquals((await refused).kind, "frozen");
    }, { scheme, timing: { pingAfterMs: 30_000, responseTimeoutMs: 20_000 } }));

  Deno.test(`${wire} transport notices a frozen server, and works again after it`, () =>
    withServer(async ({ clock, relay, get, transport }) => {
      const { body } = await get(WATCH);
      relay.freezeOpen();
      relay.swallowNew(scheme === "http");
      const refused = assertRejects(
        () => body.next(),
        TransportError,
        "no sign of life for 45000 ms",
      );
      await clock.advance(30_000);
      if (scheme === "http") {
        await eventually("a sign of life is asked for", () => relay.accepted === 2);
      }
      await clock.advance(14_999);
      assertEquals(transport.connected, true);
      await clock.advance(1);
      assertEquals([(await refused).kind, transport.connected], ["frozen", false]);
      relay.swallowNew(false);
      await textOf(await get("/version"));
    }, { scheme, timing: PINGS }));

  Deno.test(`${wire} transport stays with a watch that is silent while the server answers`, () =>
    withServer(async ({ clock, fake, get, transport, relay }) => {
      const { body } = await get(WATCH);
      for (let count = 1; count <= 3; count++) {
        await clock.advance(30_000);
        await eventually("the sign of life came", () => transport.lastSignOfLifeMs === clock.now());
        await eventually("the next one is due", () => clock.pendingTimers === 1);
      }
      fake.forEachWatch((watch) => watch.sendRaw("still here\n"));
      assertEquals(new TextDecoder().decode((await body.next()).value), "still here\n");
      assertEquals(relay.accepted, scheme === "https" ? 1 : 4);
      await body.return?.();
    }, { scheme, timing: PINGS }));

  Deno.test(`${wire} transport refuses requests once it is disposed of`, () =>
    withServer(async ({ transport, get, relay }) => {
      const { body } = await get(WATCH);
      const reading = body.next();
      await transport[Symbol.asyncDispose]();
      await assertRejects(() => reading, TransportError, "kube-relay stops");
      await assertRejects(() => get("/version"), TransportError, "Closed");
      await eventually("the connection is closed", () => relay.open === 0);
    }, { scheme }));

  for (const cut of ["closeOpen", "resetOpen"] as const) {
    Deno.test(`${wire} transport reports to a reader a broken connection (${cut})`, () =>
      withServer(async ({ relay, get }) => {
        const { body } = await get(WATCH);
        relay[cut]();
        const ended = await body.next().catch((error: unknown) => error);
        // Deno's node:http2 shows a connection that ended as a stream that ended.
        const isEnd = scheme === "https" &&
          typeof ended === "object" && ended !== null && "done" in ended && ended.done;
        assert(isEnd || ended instanceof TransportError, String(ended));
        await textOf(await get("/version"));
        assertEquals(relay.accepted, 2);
      }, { scheme }));
  }
}

Deno.test("HTTP/1 transport: request() names a server that refuses connections", () =>
  withServer(async ({ fake, relay, get }) => {
    await fake.kill();
    await relay[Symbol.asyncDispose]();
    const name = "Cannot connect to http://";
    assertEquals(
      (await assertRejects(() => get("/version"), TransportError, name)).kind,
      "connect",
    );
  }, { scheme: "http" }));

Deno.test("HTTP/2 transport: request() throws the reason of a signal, also while it connects", () =>
  withServer(async ({ relay, get }) => {
    await assertRejects(
      () => get("/version", AbortSignal.abort(new RangeError("before"))),
      RangeError,
    );
    relay.swallowNew(true);
    const controller = new AbortController();
    const waiting = get("/version", controller.signal);
    await eventually("a connection is tried", () => relay.accepted === 1);
    controller.abort(new RangeError("during"));
    await assertRejects(() => waiting, RangeError, "during");
  }));

Deno.test("HTTP/2 transport: request() gives up connecting to a black hole, and reports it", () =>
  withServer(async ({ clock, relay, get }) => {
    relay.swallowNew(true);
    const refused = assertRejects(
      () => get("/version"),
      TransportError,
      "no answer within 10000 ms",
    );
    await eventually("a connection is tried", () => relay.accepted === 1);
    await clock.advance(10_000);
    assertEquals((await refused).kind, "connect");
    relay.swallowNew(false);
    await textOf(await get("/version"));
  }, { timing: { connectTimeoutMs: 10_000 } }));

Deno.test("HTTP/2 transport lets streams continue after GOAWAY, and sends new ones elsewhere", () =>
  withServer(async ({ fake, relay, get, transport }) => {
    const { body } = await get(WATCH);
    fake.goaway();
    await eventually("the connection takes no more", () => !transport.connected);
    await textOf(await get("/version"));
    assertEquals(relay.accepted, 2);
    fake.forEachWatch((watch) => watch.sendRaw("last words\n"));
    assertEquals(new TextDecoder().decode((await body.next()).value), "last words\n");
    fake.forEachWatch((watch) => watch.end());
    assertEquals((await body.next()).done, true);
    await eventually("the former connection is closed", () => relay.open === 1);
  }));

Deno.test("HTTP/2 transport connects again when the certificates changed; open watches continue", () =>
  withServer(async ({ fake, relay, auth, get }) => {
    const { body } = await get(WATCH);
    auth.tlsMaterial = { ...auth.tlsMaterial, ...await fake.rotateClientCertificate() };
    await textOf(await get("/version"));
    assertEquals(relay.accepted, 2);
    fake.forEachWatch((watch) => watch.sendRaw("event\n"));
    assertEquals(new TextDecoder().decode((await body.next()).value), "event\n");
    await body.return?.();
    await eventually("the former connection is closed", () => relay.open === 1);
  }));

Deno.test("HTTP/2 transport: request() takes another connection if its own is retired meanwhile", () =>
  withServer(async ({ auth, fake, get }) => {
    await textOf(await get("/version"));
    const first = get("/version");
    auth.tlsMaterial = { ca: fake.ca, insecure: false };
    const answers = await Promise.all([first, get("/version")]);
    for (const answer of answers) {
      assertEquals(answer.status, 200);
      await textOf(answer);
    }
    assertEquals(fake.connections, 1);
  }));

Deno.test("HTTP/2 transport shows a client certificate", () =>
  withServer(async ({ fake, auth, get }) => {
    const pair = await fake.rotateClientCertificate();
    const refused = await get("/version");
    assertEquals(refused.status, 401);
    await textOf(refused);
    auth.tlsMaterial = { ...auth.tlsMaterial, ...pair };
    const accepted = await get("/version");
    assertEquals(accepted.status, 200);
    await textOf(accepted);
  }));

Deno.test("HTTP/2 transport trusts no other CA than the one given", async (t) => {
  const other = await createTestCertificateAuthority("another CA");
  for (
    const [name, tls] of [["another CA", { ca: other.cert }], ["no CA", { ca: undefined }]] as const
  ) {
    await t.step(`refuses a certificate with ${name}`, () =>
      withServer(async ({ auth, get }) => {
        const { ca: _, ...rest } = auth.tlsMaterial;
        auth.tlsMaterial = tls.ca === undefined ? rest : { ...rest, ca: tls.ca };
        const error = await assertRejects(() => get("/version"), TransportError);
        assertStringIncludes(error.message, "certificate-authority-data");
      }));
  }
  await t.step(
    "takes any certificate where that is asked for",
    () =>
      withServer(async ({ get }) => {
        await textOf(await get("/version"));
      }, { tls: { ca: other.cert, insecure: true } }),
  );
});

Deno.test("HTTP/2 transport checks the name in the certificate", async () => {
  await using fake = await FakeApiServer.start({ dnsNames: ["kubernetes"], ipv4: [] });
  for (
    const [serverName, isGood] of [[undefined, false], ["other", false], [
      "kubernetes",
      true,
    ]] as const
  ) {
    const auth = new StaticAuth(fake.url, { ca: fake.ca, ...(serverName && { serverName }) });
    await using transport = openTransport(new FakeClock(), auth);
    const asking = transport.request({
      method: "GET",
      path: "/readyz",
      headers: {},
      signal: NEVER,
    });
    if (isGood) assertEquals(await textOf(await asking), "ok");
    else await assertRejects(() => asking, TransportError, "tls-server-name");
  }
});

Deno.test("HTTP/2 transport describes the fault of a server without TLS", async () => {
  await using fake = await FakeApiServer.start({ scheme: "http" });
  const auth = new StaticAuth(`https://127.0.0.1:${fake.port}`);
  await using transport = openTransport(new FakeClock(), auth);
  const asking = transport.request({ method: "GET", path: "/", headers: {}, signal: NEVER });
  await assertRejects(() => asking, TransportError, "should the address begin with http://?");
});

Deno.test("HTTP/2 transport describes the fault of a server without HTTP/2", async () => {
  const ca = await createTestCertificateAuthority();
  const leaf = await ca.issue({ commonName: "old", ipv4: ["127.0.0.1"] });
  using listener = Deno.listenTls({
    hostname: "127.0.0.1",
    port: 0,
    ...leaf,
    alpnProtocols: ["http/1.1"],
  });
  const accepted = listener.accept()
    .then((connection) => connection.handshake().catch(() => {}).finally(() => connection.close()));
  const auth = new StaticAuth(`https://127.0.0.1:${listener.addr.port}`, { ca: ca.cert });
  await using transport = openTransport(new FakeClock(), auth);
  const asking = transport.request({ method: "GET", path: "/", headers: {}, signal: NEVER });
  await assertRejects(() => asking, TransportError, "it offers no HTTP/2");
  await accepted;
});
