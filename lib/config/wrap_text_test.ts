import { assertEquals } from "@std/assert";
import { wrapText } from "./wrap_text.ts";

Deno.test("wrapText() breaks at blanks and indents", () => {
  assertEquals(wrapText("one two three", { width: 8 }), "one two\nthree");
  assertEquals(wrapText("one two three", { width: 9, indent: 2 }), "  one two\n  three");
  assertEquals(wrapText("", { width: 8 }), "");
});

Deno.test("wrapText() leaves a long word whole", () => {
  assertEquals(wrapText("a bbbbbbbbbb c", { width: 5 }), "a\nbbbbbbbbbb\nc");
});
