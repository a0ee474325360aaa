import { assertEquals, assertRejects } from "@std/assert";
import { SyncFailure } from "../../lib/engine/sync_failure.ts";
import {
  testPlanChanges,
  testProxyPlan,
  testServicePlan,
} from "../../tests/support/builders/service_plans.ts";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import { RefusedItems } from "./refused_items.ts";
import { WantedRules } from "./wanted_rules.ts";

const API = testServicePlan({ name: "api", clusterIp: "127.96.0.2" });
const WEB = testServicePlan({ to: ["10.0.0.1:80"] });
const OLD_WEB = testServicePlan();
const GONE = testServicePlan({ name: "gone", clusterIp: "127.96.0.3" });
const PLAN = testProxyPlan([API, WEB]);
const BEFORE = testProxyPlan([GONE, OLD_WEB, API]);
const CHANGES = { ...testPlanChanges(PLAN, BEFORE), everything: false, shared: false };
const REFUSED = new Error("no such chain");

/** Rules of which every step is noted; writes are refused while `isBroken`. */
class Stage {
  readonly clock = new FakeClock();
  readonly refused = new RefusedItems();
  readonly steps: string[] = [];
  readonly writer = {
    isKnown: true,
    failures: 0,
    forgetRules: () => void (this.writer.isKnown = false),
    changed: (key: string) => void this.steps.push(`changed ${key}`),
    write: () => this.#write(),
    verify: () => this.#write(),
  };
  readonly rules = new WantedRules({
    clock: this.clock,
    refused: this.refused,
    writer: this.writer,
    createLayout: (_, options: number) => ({
      options,
      quarantined: [],
      set: ({ name }: typeof WEB) => void this.steps.push(`set ${name.name}`),
      delete: (key: string) => void this.steps.push(`delete ${key}`),
      quarantine: ({ key, reason }: { key: string; reason: string }) =>
        void this.steps.push(`quarantine ${key}: ${reason}`),
      setShared: () => void this.steps.push("shared"),
    }),
  });
  isBroken = false;

  /** A stage whose layout exists. */
  static async started(): Promise<Stage> {
    const stage = new Stage();
    await stage.sync({ ...CHANGES, everything: true });
    return stage;
  }

  sync(changes = CHANGES, options = 1) {
    this.steps.length = 0;
    return this.rules.sync(PLAN, { changes, options, figures: undefined });
  }

  async take(changes = CHANGES, options = 1): Promise<readonly string[]> {
    this.steps.length = 0;
    await this.rules.take(PLAN, { changes, options });
    return this.steps.filter((step) => !step.startsWith("changed"));
  }

  #write(): Promise<void> {
    this.steps.push("write");
    if (this.isBroken) {
      this.writer.failures++;
      return Promise.reject(REFUSED);
    }
    this.writer.isKnown = true;
    return Promise.resolve();
  }
}

Deno.test("WantedRules collects changes, then writes them, and counts Services", async () => {
  const stage = await Stage.started();
  assertEquals(await stage.sync(), { full: false, services: 2 });
  assertEquals(stage.steps, [
    `delete ${GONE.key}`,
    "set web",
    "write",
  ]);
  assertEquals([stage.rules.plan, stage.rules.isPending], [PLAN, false]);
});

Deno.test("WantedRules lays out the whole plan when its options are new", async () => {
  const stage = await Stage.started();
  assertEquals(await stage.take(CHANGES, 2), [`delete ${GONE.key}`, "set api", "set web"]);
  const shared = { ...CHANGES, removed: new Map(), upserted: new Set([]), shared: true };
  assertEquals(await stage.take(shared, 2), ["shared"]);
});

Deno.test("WantedRules leaves refused items out until they differ or their time has come", async () => {
  const stage = await Stage.started();
  const changes = { ...CHANGES, removed: new Map() };
  stage.refused.refuse(WEB, { reason: "no", now: 0 });
  assertEquals(await stage.take(changes), [`quarantine ${WEB.key}: no`]);
  await stage.clock.advance(1_000);
  assertEquals(await stage.take(changes), ["set web"]);
  stage.refused.refuse(OLD_WEB, { reason: "no", now: 1_000 });
  assertEquals(await stage.take(changes), ["set web"], "another plan than the one refused");
});

Deno.test("WantedRules forgets the refusals of removed items", async () => {
  const stage = await Stage.started();
  stage.refused.refuse(GONE, { reason: "no", now: 0 });
  await stage.take();
  assertEquals(stage.refused.waitingFor(GONE, 0), undefined);
});

Deno.test("WantedRules skips a ServicePort that the plan no longer has", async () => {
  const stage = await Stage.started();
  const changes = { ...CHANGES, removed: new Map(), upserted: new Set([GONE.key, WEB.key]) };
  assertEquals(await stage.take(changes), ["set web"]);
});

Deno.test("WantedRules says of each sync whether it was full", async () => {
  const stage = new Stage();
  stage.writer.isKnown = false;
  const full = async (changes = CHANGES, options = 1) => (await stage.sync(changes, options)).full;
  assertEquals([await full(), await full()], [true, false]);
  assertEquals([await full({ ...CHANGES, everything: true }), await full()], [true, false]);
  assertEquals(await full(CHANGES, 2), true, "nothing that was written counts as known");
});

Deno.test("WantedRules names the kind of a failed sync, and counts the partial ones", async () => {
  const stage = await Stage.started();
  stage.isBroken = true;
  const partial = await assertRejects(() => stage.sync(), SyncFailure, REFUSED.message);
  assertEquals([partial.full, partial.cause], [false, REFUSED]);
  assertEquals([stage.rules.failedPartialWrites, stage.rules.isPending], [1, true]);
  stage.writer.isKnown = false;
  assertEquals((await assertRejects(() => stage.sync(), SyncFailure)).full, true);
  assertEquals([stage.rules.failedWrites, stage.rules.failedPartialWrites], [2, 1]);
  stage.writer.isKnown = true;
  assertEquals((await assertRejects(() => stage.sync(CHANGES, 2), SyncFailure)).full, true);
  assertEquals(stage.rules.failedPartialWrites, 1, "its options made it full");
});
