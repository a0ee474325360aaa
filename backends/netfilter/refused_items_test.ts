import { assertEquals } from "@std/assert";
import { testServicePlan } from "../../tests/support/builders/service_plans.ts";
import { refusedByKey, RefusedItems } from "./refused_items.ts";

const PLAN = testServicePlan();

Deno.test("RefusedItems waits twice as long after each refusal, five minutes at most", () => {
  const refused = new RefusedItems();
  let now = 0;
  for (const seconds of [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]) {
    refused.refuse(PLAN, "no", now);
    assertEquals(refused.waitingFor(PLAN, now + seconds * 1000 - 1)?.reason, "no");
    assertEquals(refused.waitingFor(PLAN, now + seconds * 1000), undefined);
    now += seconds * 1000;
  }
});

Deno.test("RefusedItems lets a changed plan be tried at once", () => {
  const refused = new RefusedItems();
  refused.refuse(PLAN, "no", 0);
  assertEquals(refused.waitingFor({ ...PLAN }, 0), undefined);
  assertEquals(refused.waitingFor(testServicePlan({ name: "other" }), 0), undefined);
});

Deno.test("RefusedItems forgets an accepted item, or all", () => {
  for (const forget of ["forget", "forgetAll"] as const) {
    const refused = new RefusedItems();
    for (let time = 0; time < 5; time++) refused.refuse(PLAN, "no", 0);
    refused[forget](PLAN.key);
    assertEquals(refused.waitingFor(PLAN, 0), undefined);
    refused.refuse(PLAN, "no", 0);
    assertEquals(refused.waitingFor(PLAN, 1_000), undefined, "the first pause again");
  }
});

Deno.test("refusedByKey() leaves out items that the kernel did not refuse", () => {
  const { key } = PLAN;
  const item = { key, reason: "no", retryAt: "2026-01-02T03:04:05.000Z" };
  assertEquals([...refusedByKey([{ key, reason: "SCTP" }, item]).values()], [item]);
  assertEquals(refusedByKey([{ ...item, address: "10.96.0.1:80/TCP" }]).size, 0);
  assertEquals(refusedByKey().size, 0);
});
