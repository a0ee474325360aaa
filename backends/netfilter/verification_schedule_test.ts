import { assert, assertEquals } from "@std/assert";
import { VerificationSchedule } from "./verification_schedule.ts";

const HOUR_MS = 3_600_000;

Deno.test("VerificationSchedule compares every five minutes, less often if it is expensive, once an hour at least", () => {
  const dueAfter = (durationMs: number): number => {
    const schedule = new VerificationSchedule(() => 0);
    schedule.verified(1_000, durationMs);
    let wait = 0;
    while (!schedule.isDue(1_000 + wait)) wait += 60_000;
    return wait / 60_000;
  };
  assertEquals([0, 1_000, 2_000, 60_000].map(dueAfter), [5, 5, 10, 60]);
});

Deno.test("VerificationSchedule compares more often, if that is asked for and costs little", () => {
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

Deno.test("VerificationSchedule compares at any size within the hour, and at once if nothing is planned", () => {
  for (
    const [durationMs, atMost, atLeast] of [
      [0, 300_000, 270_000],
      [3_000, 900_000, 810_000],
      [60_000, HOUR_MS, HOUR_MS * 0.9],
    ] as const
  ) {
    for (const random of [0, 0.999]) {
      const schedule = new VerificationSchedule(() => random);
      assert(schedule.isDue(0));
      schedule.verified(1_000, durationMs);
      assertEquals(schedule.isDue(1_000 + atLeast - 1), false);
      assertEquals(schedule.isDue(1_000 + atMost), true);
    }
  }
});

Deno.test("VerificationSchedule.expect() plans the first comparison only", () => {
  const schedule = new VerificationSchedule(() => 0, { shortestMs: 1_000 });
  schedule.expect(0, 10);
  schedule.expect(2_000, 60_000);
  assertEquals([schedule.isDue(2_999), schedule.isDue(3_000)], [false, true]);
  schedule.verified(4_000, 0);
  schedule.expect(4_000, 60_000);
  assertEquals([schedule.isDue(4_999), schedule.isDue(5_000)], [false, true]);
});
