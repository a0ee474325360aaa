import { assertEquals } from "@std/assert";
import { hashText, mixHash } from "./text_hash.ts";

Deno.test("hashText() and mixHash() return what nodes of earlier releases find", () => {
  assertEquals(["", "10.0.0.1", "node-1"].map(hashText), [-1421968373, -1363376722, -1429703132]);
  assertEquals([1, -7].map(mixHash), [1364076727, 214441827]);
});
