/** Tests the health and metrics servers when their addresses cannot be bound. */
import { assertEquals, assertRejects } from "@std/assert";
import { startProxyServersStage } from "./support/stages/proxy_servers_stage.ts";

const HARD_FAILS = [
  { flag: "--healthz-bind-address", reason: "FailedToStartProxierHealthcheck" },
  { flag: "--metrics-bind-address", reason: "FailedToStartMetricServer" },
];

for (const { flag, reason } of HARD_FAILS) {
  Deno.test(`${flag} that is taken ends the process with --bind-address-hard-fail`, async () => {
    using taken = Deno.listen({ hostname: "127.0.0.1", port: 0 });
    const address = `127.0.0.1:${taken.addr.port}`;
    await using stage = await startProxyServersStage({
      args: ["--bind-address-hard-fail", `${flag}=${address}`],
    });
    await assertRejects(() => stage.ended(), Error, `Cannot listen on ${address}`);
    const [event] = stage.events;
    assertEquals([event?.type, event?.reason, event?.action, event?.regarding.kind], [
      "Warning",
      reason,
      "StartKubeProxy",
      "Node",
    ]);
  });

  Deno.test(`${flag} that is taken is tried again every 5 s`, async () => {
    const taken = Deno.listen({ hostname: "127.0.0.1", port: 0 });
    const { port } = taken.addr;
    await using stage = await startProxyServersStage({ args: [`${flag}=127.0.0.1:${port}`] });
    await stage.clock.advance(4000);
    taken.close();
    await assertRejects(() => fetch(`http://127.0.0.1:${port}/`));
    await stage.clock.advance(1000);
    const answer = await fetch(`http://127.0.0.1:${port}/`);
    assertEquals([answer.status, await answer.text()], [404, "404 page not found\n"]);
    assertEquals(stage.events, []);
  });
}

Deno.test("a health port of 0 turns the health server off, and nothing else", async () => {
  await using stage = await startProxyServersStage({ args: ["--healthz-port=0"] });
  const answer = await fetch(`http://127.0.0.1:${stage.metricsPort}/healthz`);
  assertEquals(await answer.text(), "ok");
});
