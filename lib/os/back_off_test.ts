import { assertEquals } from "@std/assert";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import { BackOff } from "./back_off.ts";

/** Measures the next pause, with a resolution of 5 ms. */
async function measure(clock: FakeClock, backOff: BackOff): Promise<number> {
  const start = clock.now();
  let ended = false;
  backOff.pause().then(() => ended = true);
  while (!ended) await clock.advance(5);
  return clock.now() - start;
}

Deno.test("BackOff.pause() doubles each time, up to 250 ms", async () => {
  const clock = new FakeClock();
  const backOff = new BackOff(clock);
  const pauses: number[] = [];
  for (let count = 0; count < 8; count++) pauses.push(await measure(clock, backOff));
  assertEquals(pauses, [5, 10, 20, 40, 80, 160, 250, 250]);
});

Deno.test("BackOff.cancel() ends a pause", async () => {
  const clock = new FakeClock();
  const backOff = new BackOff(clock);
  const pause = backOff.pause();
  backOff.cancel();
  await pause;
  assertEquals([clock.now(), clock.pendingTimers], [0, 0]);
});
