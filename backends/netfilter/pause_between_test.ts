import { assertEquals } from "@std/assert";
import { pauseBetween } from "./pause_between.ts";

Deno.test("pauseBetween() gives others their turn after 5 ms, and not before", async () => {
  let now = 0;
  let turns = 0;
  const pause = pauseBetween({
    now: () => now,
    yieldToEventLoop: () => Promise.resolve(void turns++),
  });
  const waits: boolean[] = [];
  for (const ms of [0, 2, 2, 1, 1, 4, 5]) {
    now += ms;
    const waiting = pause();
    waits.push(waiting !== undefined);
    await waiting;
  }
  assertEquals(waits, [false, false, false, true, false, true, true]);
  assertEquals(turns, 3);
});
