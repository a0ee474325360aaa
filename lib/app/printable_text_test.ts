import { assertEquals } from "@std/assert";
import { printableText } from "./printable_text.ts";

for (
  const [text, expected] of [
    ["default/web", "default/web"],
    ["Dienst für Übung", "Dienst für Übung"],
    ["a\x1b[2Jb", "a\ufffd[2Jb"],
    ["a\nb\r\tc", "a\ufffdb\ufffd\ufffdc"],
    ["a\u200bb\u061cc\u{e0041}", "a\ufffdb\ufffdc\ufffd"],
    ["\u202ea\u2066b\u009b", "\ufffda\ufffdb\ufffd"],
  ] as const
) {
  Deno.test(`printableText() of ${JSON.stringify(text)}`, () => {
    assertEquals(printableText(text), expected);
  });
}
