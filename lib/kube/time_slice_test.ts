import { assertEquals } from "@std/assert";
import { FakeClock } from "../../tests/support/fake_clock.ts";
import { TimeSlice } from "./time_slice.ts";

Deno.test("TimeSlice.pause() asks for a pause after 5 ms, and anew 5 ms after it", async () => {
  const clock = new FakeClock();
  const slice = new TimeSlice(clock);
  assertEquals(slice.pause(), undefined);
  await clock.advance(5);
  await slice.pause()!;
  assertEquals(slice.pause(), undefined);
  await clock.advance(4);
  assertEquals(slice.pause(), undefined);
  await clock.advance(1);
  await slice.pause()!;
});
