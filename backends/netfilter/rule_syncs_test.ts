import { assertEquals, assertRejects } from "@std/assert";
import { SyncFailure } from "../../lib/controller/sync_failure.ts";
import {
  testPlanChanges,
  testProxyPlan,
  testServicePlan,
} from "../../tests/support/builders/service_plans.ts";
import { RuleSyncs } from "./rule_syncs.ts";

const BEFORE = testProxyPlan([testServicePlan({ name: "gone" }), testServicePlan()]);
const PLAN = testProxyPlan([testServicePlan({ to: ["10.0.0.1:80"] })]);
const CHANGES = testPlanChanges(PLAN, BEFORE);
const REFUSED = new Error("no such chain");

/** Rules of which writes are counted, and refused while `isBroken`. */
class Stage {
  readonly syncs = new RuleSyncs();
  isKnown = true;
  /** What everything depends on is other than before, with the next plan. */
  isNew = false;
  isBroken = false;
  failedWrites = 0;
  readonly steps: string[] = [];

  sync(changes = CHANGES): Promise<{ readonly full: boolean; readonly services: number }> {
    return this.syncs.run(this, {
      plan: PLAN,
      changes,
      take: () => {
        this.steps.push("take");
        if (this.isNew) this.isKnown = false;
        return Promise.resolve();
      },
      write: () => {
        this.steps.push("write");
        if (this.isBroken) {
          this.failedWrites++;
          return Promise.reject(REFUSED);
        }
        this.isKnown = true;
        return Promise.resolve();
      },
    });
  }
}

Deno.test("RuleSyncs takes what has changed, then writes it, and counts Services", async () => {
  const stage = new Stage();
  assertEquals(stage.syncs.plan, undefined);
  assertEquals(await stage.sync(), { full: false, services: 2 });
  assertEquals(stage.steps, ["take", "write"]);
  assertEquals(stage.syncs.plan, PLAN);
});

Deno.test("RuleSyncs says of each sync whether it was full", async () => {
  const stage = new Stage();
  stage.isKnown = false;
  const full = async (changes = CHANGES) => (await stage.sync(changes)).full;
  assertEquals([await full(), await full()], [true, false]);
  assertEquals([await full({ ...CHANGES, everything: true }), await full()], [true, false]);
  stage.isNew = true;
  assertEquals(await full(), true, "nothing of what was written counts as known");
});

Deno.test("RuleSyncs says of a failure what kind of sync it was, and counts the partial ones", async () => {
  const stage = new Stage();
  stage.isBroken = true;
  const partial = await assertRejects(() => stage.sync(), SyncFailure, REFUSED.message);
  assertEquals([partial.full, partial.cause], [false, REFUSED]);
  assertEquals(stage.syncs.failedPartialWrites, 1);
  assertEquals(stage.syncs.plan, PLAN);
  stage.isKnown = false;
  assertEquals((await assertRejects(() => stage.sync(), SyncFailure)).full, true);
  assertEquals([stage.failedWrites, stage.syncs.failedPartialWrites], [2, 1]);
});

Deno.test("RuleSyncs does not call a sync partial that began as one, where its options made it full", async () => {
  const stage = new Stage();
  stage.isNew = true;
  stage.isBroken = true;
  assertEquals((await assertRejects(() => stage.sync(), SyncFailure)).full, true);
  assertEquals(stage.syncs.failedPartialWrites, 0);
});

Deno.test("RuleSyncs counts a write that was refused in a sync that went well", async () => {
  const { syncs } = new Stage();
  const rules = { isKnown: true, failedWrites: 4 };
  const write = () => Promise.resolve(void rules.failedWrites++);
  await syncs.run(rules, { plan: PLAN, changes: CHANGES, take: () => Promise.resolve(), write });
  assertEquals(syncs.failedPartialWrites, 1);
});
