import { assertEquals } from "@std/assert";
import { unusedPort } from "../../tests/support/drivers/unused_port.ts";
import { eventually } from "../../tests/support/eventually.ts";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import { MemoryLogger } from "../../tests/support/fakes/memory_logger.ts";
import { isMissing, type Requirement } from "../../tests/support/requirement.ts";
import { HANDOVER_RETRY_MS, runHttpServer } from "./http_server.ts";
import { systemNetwork } from "./network.ts";
import { probeWildcard } from "./wildcard.ts";

const IPV6: Requirement = ["IPv6", probeWildcard(systemNetwork) !== "none"];

/** Runs a server that answers with the address of its client, and ends it after the test. */
async function withServer(
  { network, ...options }: Partial<Parameters<typeof runHttpServer>[1]> & {
    readonly network?: Parameters<typeof runHttpServer>[0]["network"];
    readonly address: { readonly hostname: string; readonly port: number };
  },
  test: (stage: {
    readonly clock: FakeClock;
    readonly lines: () => readonly string[];
    readonly ask: (host?: string) => Promise<string | undefined>;
  }) => Promise<void>,
): Promise<string> {
  const [clock, logger] = [new FakeClock(), new MemoryLogger()];
  const controller = new AbortController();
  const outcome = runHttpServer({ clock, logger, ...(network && { network }) }, {
    ...{ name: "test", handler: (_, peer) => new Response(peer), signal: controller.signal },
    ...options,
  }).then(() => "ended", (error) => error.message);
  const lines = () => logger.lines.map(({ level, message }) => `${level}: ${message}`);
  const ask = async (host = "127.0.0.1") => {
    const url = `http://${host}:${options.address.port}/`;
    const answer = await fetch(url).catch(() => undefined);
    return answer && `${answer.status} ${await answer.text()}`;
  };
  await test({ clock, lines, ask });
  controller.abort();
  return await outcome;
}

Deno.test("runHttpServer() listens as soon as an address is free, and reports both once", async () => {
  const taken = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  await withServer({ address: taken.addr }, async ({ clock, lines, ask }) => {
    await clock.advance(20_000);
    assertEquals(lines(), ["error: Cannot listen; retrying"]);
    taken.close();
    await clock.advance(5000);
    assertEquals(await ask(), "200 127.0.0.1");
    assertEquals(lines().slice(1), ["info: Server listens"]);
  });
});

Deno.test("runHttpServer() answers one try after a handover, and calls the wait no error", async () => {
  const taken = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const options = { address: taken.addr, hardFail: true, handover: { pending: true } };
  await withServer(options, async ({ clock, lines, ask }) => {
    await clock.advance(20_000);
    taken.close();
    await clock.advance(HANDOVER_RETRY_MS);
    assertEquals(await ask(), "200 127.0.0.1");
    assertEquals(lines(), [
      "info: Waiting until another program releases the address",
      "info: Server listens",
    ]);
  });
});

for (const hardFail of [false, true]) {
  Deno.test(`runHttpServer() calls an address in use after a handover an error, hardFail ${hardFail}`, async () => {
    using taken = Deno.listen({ hostname: "127.0.0.1", port: 0 });
    const handover = { pending: true };
    const options = { address: taken.addr, hardFail, handover };
    const outcome = await withServer(options, async ({ clock, lines }) => {
      await clock.advance(20_000);
      handover.pending = false;
      await clock.advance(20_000);
      const levels = lines().map((line) => line.split(":")[0]);
      assertEquals(levels, hardFail ? ["info"] : ["info", "error"]);
    });
    const error = `Cannot listen on 127.0.0.1:${taken.addr.port} for the test server`;
    assertEquals(outcome.slice(0, error.length), hardFail ? error : "ended");
  });
}

Deno.test({
  name: "runHttpServer() answers IPv6 on 0.0.0.0, and IPv4 on [::], as Go does",
  ignore: isMissing("runHttpServer() on every address", [IPV6]),
  async fn() {
    for (const hostname of ["0.0.0.0", "::"]) {
      await withServer({ address: { hostname, port: unusedPort() } }, async ({ ask }) => {
        for (const [host, peer] of [["127.0.0.1", "127.0.0.1"], ["[::1]", "::1"]]) {
          assertEquals(await eventually("an answer", () => ask(host)), `200 ${peer}`);
        }
      });
    }
  },
});

Deno.test("runHttpServer() serves IPv4 alone on a machine without IPv6, and ends with idle clients", async () => {
  const network = {
    listenTcp(): never {
      throw new Deno.errors.AddrNotAvailable("no IPv6 (fake)");
    },
  };
  const port = unusedPort();
  let idle: Deno.TcpConn | undefined;
  await withServer({ address: { hostname: "0.0.0.0", port }, network }, async ({ ask }) => {
    assertEquals(await ask(), "200 127.0.0.1");
    idle = await Deno.connect({ hostname: "127.0.0.1", port });
  });
  assertEquals(await idle!.read(new Uint8Array(1)).catch(() => null), null);
  idle!.close();
});
