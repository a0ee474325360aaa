import { assertEquals, assertRejects } from "@std/assert";
import { eventually } from "../../tests/support/eventually.ts";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import { FakeApiServer } from "../../tests/support/fakes/fake_api_server.ts";
import { TcpRelay } from "../../tests/support/drivers/tcp_relay.ts";
import { openTransport, type TransportTiming } from "./api_transport.ts";
import { StaticAuth } from "../../tests/support/builders/static_auth.ts";
import { type HttpResponse, type HttpTransport, TransportError } from "./transport.ts";

const NEVER = new AbortController().signal;
const WATCH = "/api/v1/services?watch=true&resourceVersion=1000";

interface Stage {
  readonly clock: FakeClock;
  readonly fake: FakeApiServer;
  readonly relay: TcpRelay;
  readonly transport: HttpTransport;
  get(path: string, signal?: AbortSignal): Promise<HttpResponse>;
}

/** A transport, a relay and a plain fake server behind it. */
async function withServer(
  run: (stage: Stage) => Promise<void>,
  timing: TransportTiming = {},
): Promise<void> {
  await using fake = await FakeApiServer.start({ scheme: "http" });
  await using relay = await TcpRelay.start(fake.port);
  const clock = new FakeClock();
  const server = `http://127.0.0.1:${relay.port}`;
  await using transport = openTransport(clock, new StaticAuth(server), timing);
  const get = (path: string, signal = NEVER) =>
    transport.request({ method: "GET", path, headers: {}, signal });
  await run({ clock, fake, relay, transport, get });
}

async function textOf({ body }: HttpResponse): Promise<string> {
  return await new Blob(await Array.fromAsync(body) as BlobPart[]).text();
}

Deno.test("HTTP/1 transport: request() gives status, body and a sign of life", () =>
  withServer(async ({ clock, get, transport }) => {
    assertEquals(transport.lastSignOfLifeMs, undefined);
    await clock.advance(7);
    const answer = await get("/readyz");
    assertEquals([answer.status, await textOf(answer)], [200, "ok"]);
    assertEquals(transport.lastSignOfLifeMs, 7);
  }));

Deno.test("HTTP/1 transport ends a body when its reader leaves, and by the signal", () =>
  withServer(async ({ fake, get, transport }) => {
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
    assertEquals(transport.connected, false);
  }));

Deno.test("HTTP/1 transport: request() names a server that refuses connections", () =>
  withServer(async ({ fake, relay, get }) => {
    await fake.kill();
    await relay[Symbol.asyncDispose]();
    const error = await assertRejects(
      () => get("/version"),
      TransportError,
      "Cannot connect to http://",
    );
    assertEquals(error.kind, "connect");
  }));

Deno.test("HTTP/1 transport: request() gives up an answer that does not come", () =>
  withServer(async ({ clock, relay, get }) => {
    relay.swallowNew(true);
    const refused = assertRejects(
      () => get("/version"),
      TransportError,
      "no answer within 30000 ms",
    );
    await eventually("a connection is tried", () => relay.accepted === 1);
    await clock.advance(30_000);
    assertEquals((await refused).kind, "frozen");
  }, { responseTimeoutMs: 30_000 }));

Deno.test("HTTP/1 transport notices a frozen server, and works again after it", () =>
  withServer(async ({ clock, relay, get }) => {
    const { body } = await get(WATCH);
    relay.freezeOpen();
    relay.swallowNew(true);
    const refused = assertRejects(
      () => body.next(),
      TransportError,
      "no sign of life for 45000 ms",
    );
    await clock.advance(30_000);
    await eventually("a sign of life is asked for", () => relay.accepted === 2);
    await clock.advance(15_000);
    assertEquals((await refused).kind, "frozen");
    relay.swallowNew(false);
    await textOf(await get("/readyz"));
  }, { pingAfterMs: 30_000, pingTimeoutMs: 15_000 }));

Deno.test("HTTP/1 transport stays with a watch that is silent while the server answers", () =>
  withServer(async ({ clock, fake, get, transport }) => {
    const { body } = await get(WATCH);
    for (let count = 1; count <= 3; count++) {
      await clock.advance(30_000);
      await eventually("the sign of life came", () => transport.lastSignOfLifeMs === clock.now());
      await eventually("the next one is due", () => clock.pendingTimers === 1);
      assertEquals(fake.requests.filter(({ path }) => path === "/version").length, count);
    }
    fake.forEachWatch((watch) => watch.sendRaw("still here\n"));
    assertEquals(new TextDecoder().decode((await body.next()).value), "still here\n");
    await body.return?.();
  }, { pingAfterMs: 30_000, pingTimeoutMs: 15_000 }));

Deno.test("HTTP/1 transport reports to a reader a connection that breaks, and refuses once disposed of", () =>
  withServer(async ({ relay, get, transport }) => {
    const first = await get(WATCH);
    relay.resetOpen();
    await assertRejects(() => first.body.next(), TransportError);
    const second = await get(WATCH);
    const reading = second.body.next();
    await transport[Symbol.asyncDispose]();
    await assertRejects(() => reading, TransportError, "kube-relay stops");
    await assertRejects(() => get("/version"), TransportError, "Closed");
  }));
