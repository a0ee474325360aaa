import { assertEquals } from "@std/assert";
import { VerificationSchedule } from "./verification_schedule.ts";

Deno.test("VerificationSchedule compares every five minutes, the dearer the rarer, once an hour at least", () => {
  const dueAfter = (durationMs: number): number => {
    const schedule = new VerificationSchedule(() => 0);
    schedule.verified(1_000, durationMs);
    let wait = 0;
    while (!schedule.isDue(1_000 + wait)) wait += 60_000;
    return wait / 60_000;
  };
  assertEquals([0, 1_000, 2_000, 60_000].map(dueAfter), [5, 5, 10, 60]);
});

Deno.test("VerificationSchedule compares more often, where that is asked for and costs little", () => {
  const schedule = new VerificationSchedule(() => 0, { shortestMs: 10_000 });
  schedule.verified(0, 20);
  assertEquals([schedule.isDue(9_999), schedule.isDue(10_000)], [false, true]);
  schedule.verified(0, 100);
  assertEquals([schedule.isDue(29_999), schedule.isDue(30_000)], [false, true]);
});

Deno.test("VerificationSchedule keeps nodes that were started together apart", () => {
  const schedule = new VerificationSchedule(() => 1);
  schedule.verified(0, 0);
  assertEquals([schedule.isDue(269_999), schedule.isDue(270_000)], [false, true]);
});
