import { assertEquals } from "@std/assert";
import { wrapText } from "./wrap_text.ts";

Deno.test("wrapText() breaks at blanks and indents", () => {
  assertEquals(wrapText("one two three", 8), "one two\nthree");
  assertEquals(wrapText("one two three", 9, 2), "  one two\n  three");
  assertEquals(wrapText("", 8), "");
});

Deno.test("wrapText() leaves a long word whole", () => {
  assertEquals(wrapText("a bbbbbbbbbb c", 5), "a\nbbbbbbbbbb\nc");
});
