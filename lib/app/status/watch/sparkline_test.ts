import { assertEquals } from "@std/assert";
import { sparkline } from "./sparkline.ts";

Deno.test("sparkline() draws heights beside the highest, and marks what has none", () => {
  assertEquals(sparkline([0, 5, 10]), "\u2581\u2585\u2588");
  assertEquals(sparkline([1, undefined]), "\u2588x");
  assertEquals(sparkline([0, 0]), "\u2581\u2581");
  assertEquals(sparkline([]), "");
});
