import { assertEquals, assertMatch } from "@std/assert";
import { eventually } from "../../tests/support/eventually.ts";
import { FakeClock, settle } from "../../tests/support/fakes/fake_clock.ts";
import { GET, read, startHttpStage, write } from "../../tests/support/stages/http_stage.ts";
import { MemoryLogger } from "../../tests/support/fakes/memory_logger.ts";
import { listenHttp } from "../../tests/support/drivers/listen_http.ts";
import { systemClock } from "./clock.ts";
import { type HttpAcceptor, HttpConnections } from "./http_server.ts";

const LOOPBACK = { hostname: "127.0.0.1", port: 0 };

Deno.test("listenHttp() frees the port once close() has resolved, even with open connections", async () => {
  const first = listenHttp(LOOPBACK, () => new Response("first"));
  const { port } = first.address;
  // fetch() keeps the connection open for the next request.
  assertEquals(await (await fetch(`http://127.0.0.1:${port}/`)).text(), "first");
  await first.close();
  const second = listenHttp({ ...LOOPBACK, port }, () => new Response("second"));
  assertEquals(await (await fetch(`http://127.0.0.1:${port}/`)).text(), "second");
  await second.close();
  await second.finished;
});

Deno.test("listenHttp() answers any Host header, except for those that Go refuses", async (t) => {
  const listener = listenHttp(
    LOOPBACK,
    async (request) => {
      const { hostname, pathname } = new URL(request.url);
      // What only this machine may ask for is known by that name.
      return new Response(`${pathname} ${await request.text()} ${hostname === "localhost"}`);
    },
  );
  const hosts: readonly (readonly [host: string, status: number])[] = [
    ["[fe80::1%25eth0]:10256", 200],
    ["[fe80::1%eth0]", 200],
    ["10.0.0.256", 200],
    ["web:99999", 200],
    ["a b", 400],
    ["<a>", 400],
  ];
  for (const [host, status] of hosts) {
    await t.step(host, async () => {
      using connection = await Deno.connect(listener.address);
      const text = `PUT /livez HTTP/1.1\r\nHost: ${host}\r\n` +
        "Content-Length: 2\r\nConnection: close\r\n\r\nhi";
      await connection.write(new TextEncoder().encode(text));
      const answer = await new Response(connection.readable).text();
      assertEquals(answer.split(" ")[1], String(status));
      assertEquals(answer.endsWith("\r\n\r\n/livez hi false"), status === 200);
    });
  }
  await listener.close();
});

Deno.test("HttpConnections closes the longest waiting connection when a client has too many, and continues", async () => {
  const bounds = { connections: 100, connectionsOfClient: 3 };
  await using server = startHttpStage(() => new Response("x"), { bounds });
  const idle = [];
  for (let count = 0; count < 3; count++) {
    idle.push(await server.connect(GET));
    await read(idle[count]!);
    await server.clock.advance(1);
  }
  const next = await server.connect(GET);
  assertMatch(await read(next), /^HTTP\/1\.1 200 /);
  assertEquals(await read(idle[0]!), "(closed)");
  for (const client of idle.slice(1)) {
    await write(client, GET);
    assertEquals((await read(client)).includes("connection: close"), false);
  }
  assertEquals(server.refused(), 1);
});

Deno.test("HttpConnections refuses with 503 when every connection is being answered", async () => {
  const { promise, resolve } = Promise.withResolvers<void>();
  const bounds = { connections: 2, connectionsOfClient: 2 };
  let asked = 0;
  await using server = startHttpStage(async () => {
    asked++;
    await promise;
    return new Response("x");
  }, { bounds });
  const busy = [await server.connect(GET), await server.connect(GET)];
  await eventually("both are being answered", () => asked === 2);
  const text = await read(await server.connect(GET));
  // The reset for unread data may arrive before the answer.
  assertMatch(text, /^(HTTP\/1\.1 503 |\(closed\)$)/);
  resolve();
  for (const client of busy) assertMatch(await read(client), /^HTTP\/1\.1 200 /);
  assertEquals([asked, server.refused()], [2, 1]);
});

/** A client that has sent a request, without a socket. */
function fakeClient(hostname: string) {
  let hasAsked = false;
  let end: (() => void) | undefined;
  const client = {
    answers: 0,
    isClosed: false,
    remoteAddr: { transport: "tcp", hostname, port: 1 },
    read(buffer: Uint8Array): Promise<number | null> {
      if (hasAsked) return new Promise((resolve) => end = () => resolve(null));
      hasAsked = true;
      return Promise.resolve(new TextEncoder().encodeInto(GET, buffer).written);
    },
    write(bytes: Uint8Array): Promise<number> {
      client.answers++;
      return Promise.resolve(bytes.length);
    },
    close() {
      client.isClosed = true;
      end?.();
    },
  };
  return client;
}

/** Hands out one after the other; a function is called, and its error thrown. */
function fakeAcceptor(steps: (ReturnType<typeof fakeClient> | string)[]): HttpAcceptor {
  const { promise: never, reject } = Promise.withResolvers<never>();
  return {
    async accept() {
      // Time for the answer to the one before.
      await settle();
      const step = steps.shift();
      if (typeof step === "string") throw Object.assign(new Error(step), { code: step });
      return step ?? never;
    },
    close: () => reject(new Deno.errors.BadResource("closed")),
  };
}

Deno.test("HttpConnections waits, and closes waiting connections, when no file is left for a client", async () => {
  const clock = new FakeClock();
  const connections = new HttpConnections({ clock, logger: new MemoryLogger() }, { name: "test" });
  const [first, last] = [fakeClient("10.0.0.1"), fakeClient("10.0.0.1")];
  const listener = connections.serve(
    fakeAcceptor([first, "EMFILE", "EMFILE", "ENOTCONN", last]),
    () => new Response("x"),
  );
  await eventually("the last one is answered", async () => {
    await clock.advance(100);
    return last.answers === 1;
  });
  assertEquals([first.answers, first.isClosed, last.isClosed], [1, true, false]);
  await listener.close();
  assertEquals([last.isClosed, clock.pendingTimers], [true, 0]);
});

Deno.test("HttpConnections answers two clients in a turn of the event loop, however many ask", async () => {
  let turns = 0;
  const clock = {
    ...systemClock,
    async yieldToEventLoop() {
      await systemClock.yieldToEventLoop();
      turns++;
    },
  };
  const connections = new HttpConnections({ clock, logger: new MemoryLogger() }, { name: "test" });
  const clients = Array.from({ length: 40 }, (_, index) => fakeClient(`10.0.0.${index}`));
  const waiting = [...clients];
  const { promise: never, reject } = Promise.withResolvers<never>();
  const answersInTurn = new Map<number, number>();
  const listener = connections.serve({
    accept: () => Promise.resolve(waiting.shift() ?? never),
    close: () => reject(new Deno.errors.BadResource("closed")),
  }, () => {
    answersInTurn.set(turns, (answersInTurn.get(turns) ?? 0) + 1);
    return new Response("x");
  });
  await eventually("all are answered", () => clients.every(({ answers }) => answers === 1));
  assertEquals(Math.max(...answersInTurn.values()), 2);
  await listener.close();
});
