import { assertEquals } from "@std/assert";
import type { ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import {
  testPlanChanges,
  testProxyPlan,
  testServicePlan,
} from "../../tests/support/builders/service_plans.ts";
import { RefusedItems } from "./refused_items.ts";
import { type LayoutChanges, takeChanges } from "./take_changes.ts";

const API = testServicePlan({ name: "api", clusterIp: "127.96.0.2" });
const WEB = testServicePlan({ to: ["10.0.0.1:80"] });
const OLD_WEB = testServicePlan();
const GONE = testServicePlan({ name: "gone", clusterIp: "127.96.0.3" });
const PLAN = testProxyPlan([API, WEB]);

/** Writes down what is asked of a layout. */
class Stage {
  readonly clock = new FakeClock();
  readonly refused = new RefusedItems();
  readonly steps: string[] = [];
  readonly changedKeys: string[] = [];

  async take(plan: ProxyPlan, changes: LayoutChanges): Promise<readonly string[]> {
    const { clock, refused, steps } = this;
    steps.length = 0;
    const layout = {
      set: ({ name }: typeof WEB) => void steps.push(`set ${name.name}`),
      delete: (key: string) => void steps.push(`delete ${key}`),
      quarantine: ({ key, reason }: { key: string; reason: string }) =>
        void steps.push(`quarantine ${key}: ${reason}`),
      setShared: () => void steps.push("shared"),
    };
    const changed = (key: string) => void this.changedKeys.push(key);
    await takeChanges({ layout, clock, refused, changed }, plan, changes);
    return steps;
  }
}

Deno.test("takeChanges() takes what has changed, and says which ServicePorts these were", async () => {
  const stage = new Stage();
  const changes = testPlanChanges(PLAN, testProxyPlan([GONE, OLD_WEB, API]));
  const steps = await stage.take(PLAN, { changes: { ...changes, shared: false }, isNew: false });
  assertEquals(steps, [`delete ${GONE.key}`, "set web"]);
  assertEquals(stage.changedKeys, [GONE.key, WEB.key]);
});

Deno.test("takeChanges() takes all of a plan into a layout that was made for it", async () => {
  const stage = new Stage();
  const changes = testPlanChanges(PLAN, testProxyPlan([OLD_WEB, API]));
  assertEquals(await stage.take(PLAN, { changes, isNew: true }), ["set api", "set web"]);
  const shared = { ...changes, upserted: new Set([]), shared: true };
  assertEquals(await stage.take(PLAN, { changes: shared, isNew: false }), ["shared"]);
});

Deno.test("takeChanges() leaves out what was refused, until it is other or its time has come", async () => {
  const stage = new Stage();
  const changes = testPlanChanges(PLAN, testProxyPlan([OLD_WEB, API]));
  stage.refused.refuse(WEB, { reason: "no", now: 0 });
  const take = () => stage.take(PLAN, { changes, isNew: true });
  assertEquals(await take(), ["set api", `quarantine ${WEB.key}: no`]);
  await stage.clock.advance(1_000);
  assertEquals(await take(), ["set api", "set web"]);
  stage.refused.refuse(OLD_WEB, { reason: "no", now: 1_000 });
  assertEquals(await take(), ["set api", "set web"], "another plan than the one refused");
});

Deno.test("takeChanges() forgets the refusals of what went away", async () => {
  const stage = new Stage();
  stage.refused.refuse(GONE, { reason: "no", now: 0 });
  const before = testProxyPlan([GONE]);
  await stage.take(testProxyPlan([]), {
    changes: testPlanChanges(testProxyPlan([]), before),
    isNew: false,
  });
  assertEquals(stage.refused.waitingFor(GONE, 0), undefined);
});

Deno.test("takeChanges() passes by a ServicePort that the plan no longer has", async () => {
  const stage = new Stage();
  const changes = { ...testPlanChanges(PLAN, PLAN), upserted: new Set([GONE.key, WEB.key]) };
  assertEquals(await stage.take(PLAN, { changes, isNew: false }), ["set web"]);
  assertEquals(stage.changedKeys, [WEB.key]);
});
