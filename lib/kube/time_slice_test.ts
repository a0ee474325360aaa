import { assertEquals } from "@std/assert";
import { FakeClock } from "../../tests/support/fake_clock.ts";
import { TimeSlice } from "./time_slice.ts";

Deno.test("TimeSlice.pause() asks for a pause after 3 ms, and anew 3 ms after it", async () => {
  const clock = new FakeClock();
  const slice = new TimeSlice(clock);
  assertEquals(slice.pause(), undefined);
  await clock.advance(3);
  await slice.pause()!;
  assertEquals(slice.pause(), undefined);
  await clock.advance(2);
  assertEquals(slice.pause(), undefined);
  await clock.advance(1);
  await slice.pause()!;
});
