import { assertEquals } from "@std/assert";
import type { Logger } from "../log/logger.ts";
import { eventually } from "../../tests/support/eventually.ts";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import { MemoryLogger } from "../../tests/support/fakes/memory_logger.ts";
import { isMissing, type Requirement } from "../../tests/support/requirement.ts";
import { unusedPort } from "../../tests/support/drivers/unused_port.ts";
import { systemClock } from "./clock.ts";
import { HANDOVER_RETRY_MS, runHttpServer } from "./http_server.ts";
import { systemNetwork } from "./network.ts";
import { probeWildcard } from "./wildcard.ts";

const IPV6: Requirement = ["IPv6", probeWildcard(systemNetwork) !== "none"];

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

Deno.test("runHttpServer() listens as soon as an address is free, and reports both once", async () => {
  const taken = takePort();
  const { port } = taken.addr;
  const clock = new FakeClock();
  const logger = new MemoryLogger();
  const controller = new AbortController();
  const running = runHttpServer({ clock, logger }, {
    name: "test",
    address: { hostname: "127.0.0.1", port },
    handler: (_, peer) => new Response(peer),
    signal: controller.signal,
  });
  await clock.advance(20_000);
  const reported = () => logger.lines.map(({ level, message }) => `${level}: ${message}`);
  assertEquals(reported(), ["error: Cannot listen; retrying"]);
  taken.close();
  await clock.advance(5000);
  const response = await fetch(`http://127.0.0.1:${port}/`);
  assertEquals(await response.text(), "127.0.0.1");
  assertEquals(reported().slice(1), ["info: Server listens"]);
  controller.abort();
  await running;
});

Deno.test("runHttpServer() answers one try after a handover, and calls the wait no error", async () => {
  const taken = takePort();
  const { port } = taken.addr;
  const [clock, logger] = [new FakeClock(), new MemoryLogger()];
  const controller = new AbortController();
  const running = runHttpServer({ clock, logger }, {
    name: "test",
    address: { hostname: "127.0.0.1", port },
    hardFail: true,
    handover: { pending: true },
    handler: (_, peer) => new Response(peer),
    signal: controller.signal,
  });
  await clock.advance(20_000);
  taken.close();
  await clock.advance(HANDOVER_RETRY_MS);
  const response = await fetch(`http://127.0.0.1:${port}/`);
  assertEquals(await response.text(), "127.0.0.1");
  assertEquals(logger.lines.map(({ level, message }) => `${level}: ${message}`), [
    "info: Waiting until another program releases the address",
    "info: Server listens",
  ]);
  controller.abort();
  await running;
});

for (const hardFail of [false, true]) {
  Deno.test(`runHttpServer() calls an address in use after a handover an error, hardFail ${hardFail}`, async () => {
    using taken = takePort();
    const [clock, logger] = [new FakeClock(), new MemoryLogger()];
    const controller = new AbortController();
    const handover = { pending: true };
    const outcome = runHttpServer({ clock, logger }, {
      ...{ name: "test", address: { hostname: "127.0.0.1", port: taken.addr.port }, hardFail },
      ...{ handover, handler: () => new Response(), signal: controller.signal },
    }).then(() => "ended", (error) => error.message);
    await clock.advance(20_000);
    handover.pending = false;
    await clock.advance(20_000);
    controller.abort();
    const error = `Cannot listen on 127.0.0.1:${taken.addr.port} for the test server`;
    assertEquals((await outcome).slice(0, error.length), hardFail ? error : "ended");
    assertEquals(logger.lines.map(({ level }) => level), hardFail ? ["info"] : ["info", "error"]);
  });
}

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

Deno.test({
  name: "runHttpServer() answers IPv6 on 0.0.0.0, and IPv4 on [::], as Go does",
  ignore: isMissing("runHttpServer() on every address", [IPV6]),
  async fn() {
    for (const hostname of ["0.0.0.0", "::"]) {
      const port = unusedPort();
      const controller = new AbortController();
      const running = runHttpServer({ clock: systemClock, logger: collectErrors([]) }, {
        name: "test",
        address: { hostname, port },
        handler: (_, peer) => new Response(peer),
        signal: controller.signal,
      });
      for (const [host, peer] of [["127.0.0.1", "127.0.0.1"], ["[::1]", "::1"]]) {
        const answer = await eventually("an answer", async () => {
          const response = await fetch(`http://${host}:${port}/`).catch(() => undefined);
          return response?.text();
        });
        assertEquals(answer, peer, `${host} to ${hostname}`);
      }
      controller.abort();
      await running;
    }
  },
});

Deno.test("runHttpServer() serves IPv4 alone on a machine without IPv6", async () => {
  const port = unusedPort();
  const controller = new AbortController();
  const network = {
    listenTcp(): never {
      throw new Deno.errors.AddrNotAvailable("no IPv6 (fake)");
    },
  };
  const running = runHttpServer({ clock: systemClock, logger: collectErrors([]), network }, {
    name: "test",
    address: { hostname: "0.0.0.0", port },
    handler: () => new Response("here"),
    signal: controller.signal,
  });
  const response = await fetch(`http://127.0.0.1:${port}/`);
  assertEquals(await response.text(), "here");
  controller.abort();
  await running;
});

Deno.test("runHttpServer() closes idle connections when it ends", async () => {
  const port = unusedPort();
  const controller = new AbortController();
  const running = runHttpServer({ clock: systemClock, logger: collectErrors([]) }, {
    name: "test",
    address: { hostname: "127.0.0.1", port },
    handler: () => new Response(),
    signal: controller.signal,
  });
  const idle = await Deno.connect({ hostname: "127.0.0.1", port });
  controller.abort();
  await running;
  assertEquals(await idle.read(new Uint8Array(1)).catch(() => null), null);
  idle.close();
});
