import { assertEquals, assertRejects } from "@std/assert";
import { systemClock } from "../../os/clock.ts";
import { systemNetwork } from "../../os/network.ts";
import { eventually } from "../../../tests/support/eventually.ts";
import { listenHttp } from "../../../tests/support/drivers/listen_http.ts";
import { unusedPort } from "../../../tests/support/drivers/unused_port.ts";
import { answerWhile } from "./proxy_servers.ts";

const DEPENDENCIES = { clock: systemClock, network: systemNetwork };

function stage() {
  const [healthz, metrics] = [unusedPort(), unusedPort()];
  return {
    healthz,
    metrics,
    options: {
      proxy: {
        healthzBindAddress: `127.0.0.1:${healthz}`,
        metricsBindAddress: `127.0.0.1:${metrics}`,
      },
      phase: "choosing the mode",
      signal: new AbortController().signal,
    },
  };
}

async function ask(port: number, path: string): Promise<readonly [number, string]> {
  const response = await fetch(`http://127.0.0.1:${port}${path}`);
  return [response.status, await response.text()];
}

Deno.test("answerWhile() shows the phase on both ports, and frees them", async () => {
  const { healthz, metrics, options } = stage();
  const result = await answerWhile(DEPENDENCIES, options, async () => {
    await eventually(
      "an answer of the health port",
      () => ask(healthz, "/livez").catch(() => undefined),
    );
    const [live, { phase }] = await ask(healthz, "/livez").then(
      ([status, text]) => [status, JSON.parse(text)] as const,
    );
    assertEquals([live, phase], [200, "choosing the mode"]);
    assertEquals((await ask(healthz, "/healthz"))[0], 503);
    assertEquals(await ask(metrics, "/healthz"), [200, "ok"]);
    assertEquals(await ask(metrics, "/metrics"), [503, "503 not yet: choosing the mode\n"]);
    return "chosen";
  });
  assertEquals(result, "chosen");
  for (const port of [healthz, metrics]) {
    const next = listenHttp({ hostname: "127.0.0.1", port }, () => new Response());
    await next.close();
  }
});

Deno.test("answerWhile() gives up a port that is taken, for later servers", async () => {
  const { healthz, options } = stage();
  const other = listenHttp({ hostname: "127.0.0.1", port: healthz }, () => new Response("other"));
  assertEquals(await answerWhile(DEPENDENCIES, options, () => ask(healthz, "/")), [200, "other"]);
  await other.close();
});

Deno.test("answerWhile() answers on a port that becomes free meanwhile", async () => {
  const { healthz, options } = stage();
  const other = listenHttp({ hostname: "127.0.0.1", port: healthz }, () => new Response("other"));
  await answerWhile(DEPENDENCIES, options, async () => {
    assertEquals(await ask(healthz, "/"), [200, "other"]);
    await other.close();
    await eventually(
      "an answer of kube-relay",
      async () => (await ask(healthz, "/livez").catch(() => undefined))?.[0] === 200,
    );
  });
});

Deno.test("answerWhile() frees the ports of work that fails", async () => {
  const { healthz, options } = stage();
  await assertRejects(
    () => answerWhile(DEPENDENCIES, options, () => Promise.reject(new Error("no mode"))),
    Error,
    "no mode",
  );
  await listenHttp({ hostname: "127.0.0.1", port: healthz }, () => new Response()).close();
});
