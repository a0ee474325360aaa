import { assert, assertEquals } from "@std/assert";
import { DriftSchedule } from "./drift_schedule.ts";

const HOUR_MS = 3_600_000;

Deno.test("DriftSchedule looks every period, and at least every ten seconds", () => {
  assertEquals(new DriftSchedule(() => 0, 1_000).pauseMs, 1_000);
  assertEquals(new DriftSchedule(() => 0, 30_000).pauseMs, 10_000);
});

Deno.test("DriftSchedule looks seldom where a look is dear, and often after a flush", () => {
  const schedule = new DriftSchedule(() => 0, 30_000);
  schedule.looked(300);
  assertEquals(schedule.pauseMs, 30_000);
  schedule.lost();
  for (let look = 1; look <= 5; look++) {
    assertEquals(schedule.pauseMs, 1_000);
    schedule.looked(300);
  }
  assertEquals(schedule.pauseMs, 30_000);
});

Deno.test("DriftSchedule reads everything every five minutes, at any size within the hour", () => {
  for (
    const [durationMs, atMost, atLeast] of [
      [0, 300_000, 270_000],
      [3_000, 900_000, 810_000],
      [60_000, HOUR_MS, HOUR_MS * 0.9],
    ] as const
  ) {
    for (const random of [0, 0.999]) {
      const schedule = new DriftSchedule(() => random, 1_000);
      assert(schedule.isVerificationDue(0));
      schedule.verified(1_000, durationMs);
      assertEquals(schedule.isVerificationDue(1_000 + atLeast - 1), false);
      assertEquals(schedule.isVerificationDue(1_000 + atMost), true);
    }
  }
});
