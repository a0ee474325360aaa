import { assertEquals } from "@std/assert";
import { contentId } from "./content_id.ts";

Deno.test("contentId() is the beginning of the SHA-256 of FIPS 180-4 in base 32", () => {
  assertEquals(contentId("abc"), "xj4bnp4pahh6uqkb");
  assertEquals(contentId("Wörter"), "gtoxje3owb4dpzrq");
  assertEquals(contentId("a".repeat(1_000_000)), "zxdw4xezct5zfanb");
});
