import { assertEquals } from "@std/assert";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import { Backoff, socketBackoff } from "./backoff.ts";

Deno.test("Backoff.next() doubles from 0.8 s to 30 s, with up to 100 % of jitter that does not grow", () => {
  const backoff = new Backoff(() => 0);
  const waits = Array.from({ length: 8 }, (_, second) => backoff.next(second * 1000));
  assertEquals(waits, [800, 1600, 3200, 6400, 12800, 25600, 30000, 30000]);
  const random = [0.5, 0.999, 0.25].values();
  const jittery = new Backoff(() => random.next().value!);
  const found = [0, 1, 2].map((now) => Math.round(jittery.next(now)));
  assertEquals(found, [1200, 3198, 4000]);
});

Deno.test("Backoff.next() begins again after 2 min without a failure, and not before", () => {
  const backoff = new Backoff(() => 0);
  backoff.next(0);
  assertEquals(backoff.next(119_999), 1600);
  assertEquals(backoff.next(239_999), 800);
});

Deno.test("socketBackoff() waits up to 250 ms, and its pause can be ended", async () => {
  const clock = new FakeClock();
  const backoff = socketBackoff();
  const waits = Array.from({ length: 8 }, () => backoff.next(clock.now()));
  assertEquals(waits, [5, 10, 20, 40, 80, 160, 250, 250]);
  const pause = backoff.pause(clock);
  backoff.cancel();
  await pause;
});
