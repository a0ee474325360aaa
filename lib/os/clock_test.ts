import { assertEquals, assertRejects } from "@std/assert";
import { systemClock } from "./clock.ts";

/** Times that a 32-bit timer cannot hold. */
const LONG_TIMES = [2 ** 31, 2 ** 32 + 1, 2 ** 63 / 1e6, Infinity];

/** Time enough for a timer that ends at once. */
async function manyTurns(): Promise<void> {
  for (let turn = 0; turn < 20; turn++) await systemClock.yieldToEventLoop();
}

Deno.test("systemClock.setTimer() does not end at once if the time is longer than 32 bits", async (t) => {
  for (const ms of LONG_TIMES) {
    await t.step(`${ms} ms`, async () => {
      let ended = false;
      const timer = systemClock.setTimer(ms, () => ended = true);
      await manyTurns();
      timer.cancel();
      assertEquals(ended, false);
    });
  }
});

Deno.test("systemClock.sleep() does not end at once if the time is longer than 32 bits", async (t) => {
  for (const ms of LONG_TIMES) {
    await t.step(`${ms} ms`, async () => {
      const controller = new AbortController();
      const slept = systemClock.sleep(ms, controller.signal);
      slept.catch(() => {});
      await manyTurns();
      controller.abort(new Error("woken"));
      await assertRejects(() => slept, Error, "woken");
    });
  }
});
