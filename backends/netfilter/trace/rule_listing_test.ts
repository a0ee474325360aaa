import { assertEquals, assertRejects } from "@std/assert";
import { mapAtOnce } from "./rule_listing.ts";

Deno.test("mapAtOnce() keeps the order and never does more at a time", async () => {
  let running = 0;
  let most = 0;
  const slow = async (item: number) => {
    most = Math.max(most, ++running);
    // The first ones end last.
    for (let turn = 0; turn < 10 - item; turn++) await Promise.resolve();
    running--;
    return item * item;
  };
  assertEquals(await mapAtOnce([1, 2, 3, 4, 5, 6, 7], 3, slow), [1, 4, 9, 16, 25, 36, 49]);
  assertEquals(most, 3);
  assertEquals(await mapAtOnce([], 3, slow), []);
});

Deno.test("mapAtOnce() rejects with the error of the failed item", async () => {
  const fail = (item: number) =>
    item === 2 ? Promise.reject(new Error("two")) : Promise.resolve(item);
  await assertRejects(() => mapAtOnce([1, 2, 3], 2, fail), Error, "two");
});
