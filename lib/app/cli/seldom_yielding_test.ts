import { assertEquals } from "@std/assert";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import { seldomYielding } from "./seldom_yielding.ts";

Deno.test("seldomYielding() takes a turn of the event loop only when the last one is long ago", async () => {
  const clock = new FakeClock();
  let turns = 0;
  const seldom = seldomYielding({
    now: () => clock.now(),
    wallNow: () => clock.wallNow(),
    setTimer: (ms, callback) => clock.setTimer(ms, callback),
    sleep: (ms, signal) => clock.sleep(ms, signal),
    yieldToEventLoop() {
      turns++;
      return Promise.resolve();
    },
  });
  const found: number[] = [];
  for (let ms = 0; ms < 120; ms += 10) {
    await seldom.yieldToEventLoop();
    found.push(turns);
    await clock.advance(10);
  }
  assertEquals(found, [0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2]);
});

Deno.test("seldomYielding() is otherwise the clock that it was made of", async () => {
  const clock = new FakeClock();
  const seldom = seldomYielding(clock);
  let rang = 0;
  seldom.setTimer(5, () => rang++);
  await clock.advance(5);
  assertEquals([rang, seldom.now(), seldom.wallNow()], [1, clock.now(), clock.wallNow()]);
});
