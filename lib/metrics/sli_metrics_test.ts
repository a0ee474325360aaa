import { assert, assertEquals } from "@std/assert";
import { SliMetrics } from "./sli_metrics.ts";

const PING = { name: "ping", type: "healthz" };

async function samples(slis: SliMetrics): Promise<readonly string[]> {
  const { body } = await slis.render();
  return body.split("\n").filter((line) => line !== "" && !line.startsWith("#"));
}

Deno.test("SliMetrics counts checks and keeps the last result", async () => {
  const slis = new SliMetrics({ startedAt: 1_500 });
  slis.checked(PING, "success");
  slis.checked(PING, "error");
  assertEquals(await samples(slis), [
    'kubernetes_healthcheck{name="ping",type="healthz"} 0',
    'kubernetes_healthchecks_total{name="ping",type="healthz",status="success"} 1',
    'kubernetes_healthchecks_total{name="ping",type="healthz",status="error"} 1',
    "process_start_time_seconds 1.5",
  ]);
});

Deno.test("SliMetrics shows no check before one was made, and none after reset()", async () => {
  const slis = new SliMetrics({ startedAt: 0 });
  const fresh = await samples(slis);
  assertEquals(fresh, ["process_start_time_seconds 0"]);
  slis.checked(PING, "success");
  slis.reset();
  assertEquals(await samples(slis), fresh);
  assert((await slis.render()).contentType.startsWith("text/plain; version=0.0.4"));
});
