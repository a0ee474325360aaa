import { assertEquals, assertStrictEquals } from "@std/assert";
import { type RecencyItem, RecencyList } from "./recency_list.ts";

interface Item extends RecencyItem<Item> {
  readonly name: string;
}

function item(name: string): Item {
  return { name, older: undefined, newer: undefined, usedAt: 0 };
}

function names(list: RecencyList<Item>): string {
  return [...list].map(({ name }) => name).join("");
}

Deno.test("RecencyList keeps items from the longest unused to the last used", async (t) => {
  const [a, b, c] = [item("a"), item("b"), item("c")];
  const list = new RecencyList<Item>();
  for (const [index, each] of [a, b, c].entries()) list.add(each, index);
  const steps: [string, () => void, string][] = [
    ["add() appends", () => {}, "abc"],
    ["touch() moves the first to the end", () => list.touch(a, 3), "bca"],
    ["touch() moves one from the middle", () => list.touch(c, 4), "bac"],
    ["touch() leaves the last in place", () => list.touch(c, 5), "bac"],
    ["delete() takes one from the middle", () => list.delete(a), "bc"],
    ["touch() leaves one alone that was deleted", () => list.touch(a, 6), "bc"],
    ["delete() takes the first", () => list.delete(b), "c"],
    ["add() takes an item that was deleted", () => list.add(a, 6), "ca"],
    ["delete() takes the last", () => list.delete(a), "c"],
    ["delete() takes the only one", () => list.delete(c), ""],
  ];
  for (const [name, action, expected] of steps) {
    await t.step(name, () => {
      action();
      assertEquals(names(list), expected);
      assertEquals(list.size, expected.length);
      assertEquals(list.oldest?.name, expected[0]);
    });
  }
});

Deno.test("RecencyList.touch() notes the time of last use", () => {
  const only = item("a");
  const list = new RecencyList<Item>();
  list.add(only, 1);
  list.touch(only, 7);
  assertStrictEquals(only.usedAt, 7);
});

Deno.test("RecencyList can lose the current item while it is walked through", () => {
  const list = new RecencyList<Item>();
  for (const name of "abc") list.add(item(name), 0);
  for (const each of list) list.delete(each);
  assertEquals(list.size, 0);
});
