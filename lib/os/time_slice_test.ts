import { assertEquals } from "@std/assert";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import { TimeSlice } from "./time_slice.ts";

Deno.test("TimeSlice.pause() asks for a pause after 4 ms, and again 4 ms later", async () => {
  const clock = new FakeClock();
  const slice = new TimeSlice(clock);
  assertEquals(slice.pause(), undefined);
  await clock.advance(4);
  await slice.pause()!;
  assertEquals(slice.pause(), undefined);
  await clock.advance(3);
  assertEquals(slice.pause(), undefined);
  await clock.advance(1);
  await slice.pause()!;
});
