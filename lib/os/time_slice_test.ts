import { assertEquals } from "@std/assert";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import { forEachInSlices, TimeSlice } from "./time_slice.ts";

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

Deno.test("forEachInSlices() lets other tasks run when items are slow", async () => {
  const clock = new FakeClock();
  let [time, yields] = [0, 0];
  clock.now = () => time;
  clock.yieldToEventLoop = () => Promise.resolve(void yields++);
  await forEachInSlices(clock, Array(64).fill(0), () => time += 1);
  assertEquals(yields, 16);
});

Deno.test("forEachInSlices() skips items that are deleted during the iteration", async () => {
  const set = new Set(["a", "b", "c"]);
  const seen: string[] = [];
  await forEachInSlices(new FakeClock(), set, (item) => {
    seen.push(item);
    set.delete(item);
    set.delete("b");
  });
  assertEquals(seen, ["a", "c"]);
});
