import { assertEquals, assertRejects } from "@std/assert";
import type { Logger } from "../log/logger.ts";
import { systemClock } from "./clock.ts";
import { runHttpServer } from "./http_server.ts";
import { FakeClock } from "../../tests/support/fake_clock.ts";

function collectErrors(errors: string[]): Logger {
  const logger: Logger = {
    error: (message) => void errors.push(message),
    warn: () => {},
    info: () => {},
    verbose: () => {},
    enabled: () => false,
    with: () => logger,
  };
  return logger;
}

function takePort(): Deno.TcpListener {
  return Deno.listen({ hostname: "127.0.0.1", port: 0 });
}

Deno.test("runHttpServer() takes an address as soon as it is free, and complains once", async () => {
  const taken = takePort();
  const { port } = taken.addr;
  const clock = new FakeClock();
  const errors: string[] = [];
  const controller = new AbortController();
  const running = runHttpServer({ clock, logger: collectErrors(errors) }, {
    name: "test",
    address: { hostname: "127.0.0.1", port },
    handler: (_, peer) => new Response(peer),
    signal: controller.signal,
  });
  await clock.advance(20_000);
  assertEquals(errors, ["Cannot listen; tried again every 5 s"]);
  taken.close();
  await clock.advance(5000);
  const response = await fetch(`http://127.0.0.1:${port}/`);
  assertEquals(await response.text(), "127.0.0.1");
  controller.abort();
  await running;
});

Deno.test("runHttpServer() refuses a Host header that is none by itself", async () => {
  const free = takePort();
  const { port } = free.addr;
  free.close();
  const controller = new AbortController();
  const errors: string[] = [];
  const running = runHttpServer({ clock: systemClock, logger: collectErrors(errors) }, {
    name: "test",
    address: { hostname: "127.0.0.1", port },
    handler: (request) => new Response(new URL(request.url).pathname),
    signal: controller.signal,
  });
  const connection = await Deno.connect({ port, hostname: "127.0.0.1" });
  const request = "GET / HTTP/1.1\r\nHost: [\r\nConnection: close\r\n\r\n";
  await connection.write(new TextEncoder().encode(request));
  const answer = await new Response(connection.readable).text();
  assertEquals(answer.split("\r\n")[0], "HTTP/1.1 400 Bad Request");
  assertEquals(errors, []);
  controller.abort();
  await running;
});

Deno.test("runHttpServer() rejects for a taken address with hardFail", async () => {
  using taken = takePort();
  const { port } = taken.addr;
  await assertRejects(
    () =>
      runHttpServer({ clock: systemClock, logger: collectErrors([]) }, {
        name: "metrics",
        address: { hostname: "127.0.0.1", port },
        hardFail: true,
        handler: () => new Response(),
        signal: new AbortController().signal,
      }),
    Error,
    `Cannot listen on 127.0.0.1:${port} for the metrics server`,
  );
});

Deno.test("runHttpServer() ends while it waits for its address", async () => {
  using taken = takePort();
  const controller = new AbortController();
  const running = runHttpServer({ clock: systemClock, logger: collectErrors([]) }, {
    name: "test",
    address: { hostname: "127.0.0.1", port: taken.addr.port },
    handler: () => new Response(),
    signal: controller.signal,
  });
  controller.abort();
  await running;
});
