import { assertEquals, assertThrows } from "@std/assert";
import { growthOf } from "./soak_counts.ts";

Deno.test("growthOf() leaves the warm-up out and finds a figure level that is noisy", () => {
  const figures = [10, 60, 90, 100, 104, 97, 99, 103, 101];
  assertEquals(growthOf(figures), { first: 60, before: 100, after: 101, isLevel: true });
});

Deno.test("growthOf() finds a leak, and no leak in a single high figure", () => {
  assertEquals(growthOf([90, 90, 90, 100, 105, 110, 115, 120, 125]).isLevel, false);
  assertEquals(growthOf([90, 90, 90, 100, 100, 100, 100, 500, 100]).isLevel, true);
});

Deno.test("growthOf() takes a figure that falls for level", () => {
  assertEquals(growthOf([100, 100, 50]).isLevel, true);
});

Deno.test("growthOf() judges no run without three looks", () => {
  assertThrows(() => growthOf([1, 2]), RangeError, "less than three figures");
});
