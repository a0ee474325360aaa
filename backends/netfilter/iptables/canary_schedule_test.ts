import { assertEquals } from "@std/assert";
import { CanarySchedule } from "./canary_schedule.ts";

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
