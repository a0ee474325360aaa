import { assertEquals } from "@std/assert";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { FakeClock } from "../../tests/support/fake_clock.ts";
import { testProxyPlan, testServicePlan } from "../../tests/support/service_plans.ts";
import { inspectPlan } from "./inspect_plan.ts";

const clock = new FakeClock();
const API = testServicePlan({ name: "api", clusterIp: "127.96.0.2" });
const WEB = testServicePlan();
const GONE = testServicePlan({ name: "gone" });
const PLAN = testProxyPlan([API, WEB]);
const QUARANTINED = [{ key: WEB.key, reason: "no" }, { key: API.key, reason: "nor this" }];

Deno.test("inspectPlan() has nothing before the first plan", async () => {
  assertEquals(await inspectPlan(undefined, { clock, quarantined: QUARANTINED }), {
    services: [],
    quarantined: [],
  });
});

Deno.test("inspectPlan() has all ServicePorts in the order of the plan, and what became of each", async () => {
  const { services, quarantined } = await inspectPlan(PLAN, {
    clock,
    quarantined: QUARANTINED.slice(0, 1),
  });
  assertEquals(services.map(({ key, addresses }) => [key, addresses.map(({ state }) => state)]), [
    [API.key, ["refusing"]],
    [WEB.key, ["quarantined"]],
  ]);
  assertEquals(quarantined, QUARANTINED.slice(0, 1));
});

Deno.test("inspectPlan() has only those that were asked for and that there are", async () => {
  const keys = [WEB.key, GONE.key];
  const { services, quarantined } = await inspectPlan(PLAN, {
    clock,
    keys,
    quarantined: QUARANTINED,
  });
  assertEquals(services.map(({ key }) => key), [WEB.key]);
  assertEquals(quarantined, QUARANTINED.slice(0, 1));
  assertEquals(await inspectPlan(PLAN, { clock, keys: [], quarantined: QUARANTINED }), {
    services: [],
    quarantined: [],
  });
});

Deno.test("inspectPlan() tells what was counted, where anything was", async () => {
  const counted = { bytesFromClients: 3, bytesToClients: 4 };
  const trafficOf = (service: ServicePlan) => service === WEB ? counted : undefined;
  const { services } = await inspectPlan(PLAN, { clock, trafficOf });
  assertEquals(services.map(({ traffic }) => traffic), [undefined, counted]);
  assertEquals(services.map((service) => "traffic" in service), [false, true]);
});
