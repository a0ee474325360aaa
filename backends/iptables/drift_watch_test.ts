import { assertEquals } from "@std/assert";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import { MemoryLogger } from "../../tests/support/fakes/memory_logger.ts";
import { CanarySchedule } from "../netfilter/iptables/canary_schedule.ts";
import { IptablesError } from "../netfilter/iptables/restore_error.ts";
import { ruleWatch } from "./drift_watch.ts";
import { WriteFigures } from "./target.ts";

/** A watch whose look for each canary ends so. */
function watchOf(hasRules: (table: string, clock: FakeClock) => Promise<boolean>) {
  const clock = new FakeClock();
  const runner = { hasRules: (table: string) => hasRules(table, clock) };
  const edges = {
    clock,
    logger: new MemoryLogger(),
    runner,
    target: { figures: new WriteFigures() },
  };
  return { clock, watch: ruleWatch(edges, ["mangle", "filter", "nat"], { periodMs: 30_000 }) };
}

Deno.test("the watch of iptables notices a flush of any table, and goes on looking every second", async () => {
  for (const flushed of ["mangle", "filter", "nat"]) {
    const { watch } = watchOf((table) => Promise.resolve(table !== flushed));
    assertEquals(watch.pauseMs, 10_000);
    assertEquals(await watch.look(), { table: flushed });
    assertEquals(watch.pauseMs, 1_000);
  }
});

Deno.test("the watch of iptables takes a table for whole that cannot be looked at now", async () => {
  const locked = new IptablesError("locked", { kind: "locked", reason: "locked" });
  const { watch } = watchOf(() => Promise.reject(locked));
  assertEquals(await watch.look(), undefined);
});

Deno.test("the watch of iptables looks less often if a look is expensive", async () => {
  const { clock, watch } = watchOf(async (_, clock) => {
    await clock.sleep(1_000);
    return true;
  });
  const looked = watch.look();
  for (let table = 0; table < 3; table++) await clock.advance(1_000);
  assertEquals([await looked, watch.pauseMs], [undefined, 300_000]);
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
