import { assertEquals } from "@std/assert";
import { nodeResource } from "./resources.ts";

Deno.test("nodeResource() escapes what field selectors give a meaning", () => {
  assertEquals(nodeResource("node-a").fieldSelector, "metadata.name=node-a");
  assertEquals(nodeResource("a,b=c\\d").fieldSelector, "metadata.name=a\\,b\\=c\\\\d");
});
