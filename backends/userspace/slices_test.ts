import { assertEquals } from "@std/assert";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import { forEachInSlices } from "./slices.ts";

class CountingClock extends FakeClock {
  yields = 0;

  override yieldToEventLoop(): Promise<void> {
    this.yields++;
    return Promise.resolve();
  }
}

Deno.test("forEachInSlices() lets others have their turn every 256 items", async () => {
  const clock = new CountingClock();
  const seen: number[] = [];
  const items = Array.from({ length: 600 }, (_, index) => index);
  await forEachInSlices(clock, items, (item) => seen.push(item));
  assertEquals(seen, items);
  assertEquals(clock.yields, 2);
});

Deno.test("forEachInSlices() lets others have their turn when items take long", async () => {
  const clock = new CountingClock();
  let time = 0;
  clock.now = () => time;
  await forEachInSlices(clock, Array(64).fill(0), () => time += 1);
  assertEquals(clock.yields, 4);
});

Deno.test("forEachInSlices() passes over items that are deleted on the way", async () => {
  const set = new Set(["a", "b", "c"]);
  const seen: string[] = [];
  await forEachInSlices(new CountingClock(), set, (item) => {
    seen.push(item);
    set.delete(item);
    set.delete("b");
  });
  assertEquals(seen, ["a", "c"]);
});
