import { assertEquals } from "@std/assert";
import { ipvsPlanOf, IpvsRuns } from "../../tests/support/stages/ipvs_stage.ts";
import { testServicePlan } from "../../tests/support/builders/service_plans.ts";

const MINUTE = 60_000;
const GOING = "10.2.0.1:8080";
const WEB = { name: "web", clusterIp: "172.30.0.1" };
const BEFORE = ipvsPlanOf(testServicePlan({ ...WEB, to: ["10.1.0.1:8080", GOING] }));
const AFTER = ipvsPlanOf(testServicePlan({ ...WEB, to: ["10.1.0.1:8080"] }));

/** An endpoint with a connection begins to drain, and ten minutes pass. */
async function drainingRuns(): Promise<IpvsRuns> {
  const runs = new IpvsRuns();
  runs.machine.connections.set(GOING, 1);
  await runs.run(async (stage) => {
    await stage.sync(BEFORE);
    await stage.sync(AFTER);
    await stage.pass(10 * MINUTE);
    assertEquals(stage.weight(GOING), 0);
  });
  return runs;
}

Deno.test("IpvsBackend: an endpoint that drains at a restart has its whole time again", async () => {
  const runs = await drainingRuns();
  await runs.run(async (stage) => {
    await stage.sync(AFTER);
    await stage.pass(15 * MINUTE - 10_000);
    assertEquals(stage.weight(GOING), 0, "it still drains");
    await stage.pass(20_000);
    assertEquals(stage.weight(GOING), undefined, "its time is over");
  });
});

Deno.test("IpvsBackend: without a bound an endpoint drains as long as it likes, over restarts", async () => {
  const runs = await drainingRuns();
  await runs.run(async (stage) => {
    await stage.sync(AFTER);
    await stage.pass(60 * MINUTE);
    assertEquals(stage.weight(GOING), 0);
  }, { drainTimeoutMs: 0 });
});

Deno.test("IpvsBackend: one that came back and goes again has its whole time", async () => {
  const runs = await drainingRuns();
  await runs.run(async (stage) => {
    await stage.sync(AFTER);
    await stage.pass(10 * MINUTE);
    await stage.sync(BEFORE);
    await stage.sync(AFTER);
    await stage.pass(14 * MINUTE);
    assertEquals(stage.weight(GOING), 0);
    await stage.pass(2 * MINUTE);
    assertEquals(stage.weight(GOING), undefined);
  });
});
