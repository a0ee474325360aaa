import { assertEquals } from "@std/assert";
import { SetIndex } from "./set_index.ts";

Deno.test("SetIndex.delete() leaves the others", () => {
  const index = new SetIndex<string, string>();
  for (const value of ["a", "b", "c", "a"]) index.add("key", value);
  const seen: (readonly string[])[] = [];
  for (const value of ["b", "b", "a", "c"]) {
    index.delete("key", value);
    seen.push([...index.at("key")]);
  }
  assertEquals(seen, [["a", "c"], ["a", "c"], ["c"], []]);
  assertEquals([index.has("key"), [...index.keys()]], [false, []]);
});
