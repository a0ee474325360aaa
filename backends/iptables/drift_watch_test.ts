import { assertEquals } from "@std/assert";
import { DriftStage } from "../../tests/support/stages/drift_stage.ts";
import { IptablesError } from "../netfilter/iptables/restore_error.ts";
import type { DriftWatch } from "../netfilter/drift_watch.ts";
import { CanarySchedule } from "../netfilter/iptables/canary_schedule.ts";
import { createRuleWatch } from "./drift_watch.ts";
import type { WriteFigures } from "./target.ts";

/** A machine on which tables are flushed, with its watch. */
class Stage extends DriftStage {
  readonly flushed = new Set<string>();
  looks = 0;
  verifications = 0;
  isKnown = true;
  isPending = false;
  lookError: Error | undefined;
  /** The time that a check of one table takes. */
  lookMs = 0;
  readonly watch: DriftWatch;

  constructor() {
    super();
    const runner = {
      hasRules: async (table: string) => {
        this.looks++;
        if (this.lookError) throw this.lookError;
        if (this.lookMs > 0) await this.clock.sleep(this.lookMs);
        return !this.flushed.has(table);
      },
    };
    this.watch = createRuleWatch(
      { ...this, runner, rules: this, random: () => 0 },
      { periodMs: 30_000, tables: ["mangle", "filter", "nat"] },
    );
    this.watch.start();
  }

  verify(figures: WriteFigures): Promise<void> {
    this.verifications++;
    figures.chains = this.flushed.size * 3;
    figures.jumps = this.flushed.size;
    this.flushed.clear();
    return Promise.resolve();
  }
}

for (const table of ["mangle", "filter", "nat"]) {
  Deno.test(`DriftWatch notices a flush of table ${table} alone, and counts the repairs`, async () => {
    await using stage = new Stage();
    stage.flushed.add(table);
    await stage.pass(11);
    assertEquals(stage.verifications, 1);
    assertEquals(stage.drift, [
      { kind: "chain", found: 3, repaired: 3 },
      { kind: "rule", found: 1, repaired: 1 },
    ]);
    assertEquals(stage.messages, [
      "Another program flushed a table of iptables; repairing",
      "Another program removed or changed rules; repairing",
    ]);
    stage.flushed.add(table);
    await stage.pass(2);
    assertEquals(stage.verifications, 2, "who flushes once often goes on");
  });
}

Deno.test("DriftWatch reads everything after five minutes, and reports nothing if nothing is wrong", async () => {
  await using stage = new Stage();
  await stage.pass(290);
  assertEquals(stage.verifications, 0);
  await stage.pass(20);
  assertEquals([stage.verifications, stage.drift, stage.messages], [1, [], []]);
});

Deno.test("DriftWatch treats an unreadable table as intact", async () => {
  await using stage = new Stage();
  stage.lookError = new IptablesError("locked", { kind: "locked", reason: "locked" });
  await stage.pass(30);
  assertEquals([stage.looks > 3, stage.verifications, stage.messages], [true, 0, []]);
});

Deno.test("DriftWatch looks less often if a look is expensive", async () => {
  await using stage = new Stage();
  stage.lookMs = 1_000;
  await stage.pass(10 + 3 + 299);
  assertEquals(stage.looks, 3);
  await stage.pass(1 + 3);
  assertEquals(stage.looks, 6);
});

Deno.test("DriftWatch waits for a sync that is under way", async () => {
  await using stage = new Stage();
  const sync = Promise.withResolvers<void>();
  const running = stage.turns.run(() => sync.promise);
  stage.flushed.add("nat");
  await stage.pass(11);
  assertEquals(stage.verifications, 0);
  sync.resolve();
  await running;
  await stage.pass(1);
  assertEquals(stage.verifications, 1);
});

Deno.test("CanarySchedule looks every period, and at least every ten seconds", () => {
  assertEquals(new CanarySchedule(1_000).pauseMs, 1_000);
  assertEquals(new CanarySchedule(30_000).pauseMs, 10_000);
});

Deno.test("CanarySchedule looks less often if a look is expensive, and often after a flush", () => {
  const schedule = new CanarySchedule(30_000);
  schedule.looked(300);
  assertEquals(schedule.pauseMs, 30_000);
  schedule.lost();
  for (let look = 1; look <= 5; look++) {
    assertEquals(schedule.pauseMs, 1_000);
    schedule.looked(300);
  }
  assertEquals(schedule.pauseMs, 30_000);
});
