import { assertEquals } from "@std/assert";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import { Watchdog } from "./watchdog.ts";

Deno.test("Watchdog calls back once, when it was not touched for so long", async () => {
  const clock = new FakeClock();
  let silences = 0;
  using dog = new Watchdog(clock, { silenceMs: 100, onSilence: () => silences++ });
  await clock.advance(99);
  dog.touch();
  await clock.advance(99);
  assertEquals(silences, 0);
  await clock.advance(1);
  assertEquals(silences, 1);
  await clock.advance(1000);
  assertEquals([silences, clock.pendingTimers], [1, 0]);
});

Deno.test("Watchdog leaves no timer when it is disposed of", async () => {
  const clock = new FakeClock();
  {
    using dog = new Watchdog(clock, { silenceMs: 100, onSilence: () => {} });
    await clock.advance(50);
    dog.touch();
    await clock.advance(70);
  }
  assertEquals(clock.pendingTimers, 0);
});
