/**
 * Attacks an HTTP server with clients that send slowly, send too much, or never read. Uses real
 * sockets and the clock of the test.
 */
import { assert, assertEquals, assertMatch } from "@std/assert";
import { eventually } from "../../tests/support/eventually.ts";
import type { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import { GET, read, startHttpStage, write } from "../../tests/support/stages/http_stage.ts";
import { readToEnd } from "../../tests/support/drivers/tcp_peers.ts";

/** Moves the clock on until the client's end is as wanted: the server may not have read it yet. */
async function statusAfter(clock: FakeClock, ms: number, client: Deno.TcpConn): Promise<string> {
  const answer = read(client);
  let isDone = false;
  void answer.then(() => isDone = true);
  await eventually("an answer or an end", async () => {
    await clock.advance(ms);
    return isDone;
  });
  return (await answer).split("\r\n")[0]!;
}

Deno.test("HttpConnections closes a client that sends nothing", async () => {
  await using server = startHttpStage(() => new Response("x"));
  const client = await server.connect();
  assertEquals(await statusAfter(server.clock, 2500, client), "(closed)");
  assert(server.clock.now() >= 10_000);
});

Deno.test("HttpConnections answers half a request with 408 in the end", async () => {
  await using server = startHttpStage(() => new Response("x"));
  for (const text of ["GET / HT", "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab"]) {
    const client = await server.connect(text);
    assertEquals(await statusAfter(server.clock, 2500, client), "HTTP/1.1 408 Request Timeout");
  }
});

Deno.test("HttpConnections gives a client that sends byte by byte no more time", async () => {
  await using server = startHttpStage(() => new Response("x"));
  const client = await server.connect("GET / ");
  let isDone = false;
  const answer = read(client).finally(() => isDone = true);
  await eventually("an end", async () => {
    await write(client, "x").catch(() => {});
    await server.clock.advance(1000);
    return isDone;
  });
  assertMatch(await answer, /^HTTP\/1\.1 408 /);
  assert(server.clock.now() < 30_000);
});

Deno.test("HttpConnections keeps a connection for the next request, for a while", async () => {
  await using server = startHttpStage(() => new Response("x"));
  const client = await server.connect(GET);
  assertMatch(await read(client), /^HTTP\/1\.1 200 OK\r\n[^]*\r\n\r\nx$/);
  await server.clock.advance(60_000);
  await write(client, GET);
  assertMatch(await read(client), /^HTTP\/1\.1 200 OK\r\n/);
  assertEquals(await statusAfter(server.clock, 20_000, client), "(closed)");
});

Deno.test("HttpConnections closes a client that does not read its answer", async () => {
  const piece = new Uint8Array(1 << 20);
  await using server = startHttpStage(() =>
    new Response(ReadableStream.from(Array.from({ length: 64 }, () => piece)), {
      headers: { "content-length": String(64 << 20) },
    })
  );
  const client = await server.connect(GET);
  assertEquals(await client.read(new Uint8Array(1)), 1);
  // Only the data in the kernel's buffers at that time arrives.
  await server.clock.advance(20_000);
  const { bytes } = await readToEnd(client).catch(() => ({ bytes: 0 }));
  assert(bytes < 64 << 20, `${bytes}`);
});

Deno.test("HttpConnections sends a stream for as long as the client reads it", async () => {
  let cancelled = 0;
  const ended = Promise.withResolvers<void>();
  await using server = startHttpStage(() => {
    const stream = new ReadableStream<Uint8Array>({
      start: (controller) => controller.enqueue(new TextEncoder().encode("first")),
      cancel() {
        cancelled++;
        ended.resolve();
      },
    });
    return new Response(stream, { headers: { "transfer-encoding": "chunked" } });
  });
  const client = await server.connect(GET);
  const text = [await read(client)];
  if (!text[0]!.includes("first")) text.push(await read(client));
  assertMatch(text.join(""), /transfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n$/);
  await server.clock.advance(3_600_000);
  assertEquals(cancelled, 0);
  await client.closeWrite();
  await ended.promise;
});

Deno.test("HttpConnections notifies a handler that its client has disconnected", async () => {
  const gone = Promise.withResolvers<string>();
  await using server = startHttpStage(({ signal }) => {
    signal.addEventListener("abort", () => gone.resolve("gone"));
    return new Promise(() => {});
  });
  const client = await server.connect(GET);
  await client.closeWrite();
  assertEquals(await gone.promise, "gone");
});

Deno.test("HttpConnections answers requests that come at once one after the other", async () => {
  let underWay = 0;
  let most = 0;
  await using server = startHttpStage(async ({ url }) => {
    most = Math.max(most, ++underWay);
    await Promise.resolve();
    underWay--;
    return new Response(new URL(url).pathname);
  });
  const paths = Array.from({ length: 500 }, (_, index) => `/${index}`);
  const requests = paths.map((path) => `GET ${path} HTTP/1.1\r\nHost: a\r\n`);
  const client = await server.connect(`${requests.join("\r\n")}Connection: close\r\n\r\n`);
  const { text } = await readToEnd(client);
  assertEquals([...text.matchAll(/\r\n\r\n(\/\d+)/g)].map(([, path]) => path), paths);
  assertEquals(most, 1);
});

Deno.test("HttpConnections refuses requests that are too long", async () => {
  await using server = startHttpStage(() => new Response("x"));
  const rows: readonly (readonly [string, string])[] = [
    [`GET / HTTP/1.1\r\nHost: a\r\nX: ${"x".repeat(20_000)}`, "HTTP/1.1 431"],
    ["PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 10000\r\n\r\n", "HTTP/1.1 413"],
    ["hello\r\n\r\n", "HTTP/1.1 400"],
  ];
  for (const [text, expected] of rows) {
    const client = await server.connect(text);
    assertEquals((await read(client)).slice(0, expected.length), expected);
  }
});

Deno.test("HttpConnections answers HEAD, HTTP/1.0, in chunks, and with a status without a body", async () => {
  await using server = startHttpStage(({ url }) =>
    new Response(url.endsWith("/none") ? null : "xyz", {
      status: url.endsWith("/none") ? 204 : 200,
      ...(url.endsWith("/chunks") && { headers: { "transfer-encoding": "chunked" } }),
    })
  );
  const ask = async (text: string) => (await readToEnd(await server.connect(text))).text;
  const close = "Host: a\r\nConnection: close\r\n\r\n";
  assertMatch(await ask(`HEAD / HTTP/1.1\r\n${close}`), /\r\ncontent-length: 3\r\n[^]*\r\n\r\n$/);
  assertMatch(await ask("GET / HTTP/1.0\r\n\r\n"), /\r\nconnection: close\r\n[^]*\r\n\r\nxyz$/);
  const chunks = await ask(`GET /chunks HTTP/1.1\r\n${close}`);
  assertMatch(chunks, /\r\n\r\n3\r\nxyz\r\n0\r\n\r\n$/);
  const none = await ask(`GET /none HTTP/1.1\r\n${close}`);
  assertMatch(none, /^HTTP\/1\.1 204 [^]*\r\n\r\n$/);
  assertEquals(none.includes("content-length"), false);
});

Deno.test("HttpConnections answers 500 for a fault, and reports it in the log", async () => {
  await using server = startHttpStage(({ url }) => {
    if (!url.endsWith("/stream")) throw new Error("a fault");
    const body = new ReadableStream({ pull: () => Promise.reject(new Error("a fault")) });
    return new Response(body, { headers: { "transfer-encoding": "chunked" } });
  });
  assertMatch(await read(await server.connect(GET)), /^HTTP\/1\.1 500 /);
  const stream = await server.connect("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
  const { text } = await readToEnd(stream);
  assertEquals(text.endsWith("0\r\n\r\n"), false, "a broken answer does not look whole");
  const messages = server.logger.lines.map(({ level, message }) => `${level}: ${message}`);
  assertEquals(messages, Array(2).fill("error: Cannot answer a request"));
});
