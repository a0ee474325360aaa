import { assertEquals } from "@std/assert";
import { SetIndex } from "./set_index.ts";

Deno.test("SetIndex.move() files a value under other keys, and forgets keys without values", () => {
  const index = new SetIndex<string, number>();
  index.move(1, { from: [], to: ["a", "b"] });
  index.move(2, { from: ["a"], to: ["b"] });
  index.move(1, { from: ["a", "b"], to: ["c"] });
  assertEquals([...index.keys()].map((key) => [key, ...index.at(key)]), [["b", 2], ["c", 1]]);
  assertEquals([...index.at("a")], []);
});
