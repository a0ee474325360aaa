import { assertEquals } from "@std/assert";
import { printableColors, printableLines, printableText } from "./printable_text.ts";

for (
  const [text, expected] of [
    ["default/web", "default/web"],
    ["Dienst für Übung", "Dienst für Übung"],
    ["a\x1b[2Jb", "a\\u001b[2Jb"],
    ["a\nb\r\tc", "a\\u000ab\\u000d\\u0009c"],
    ["a\u200bb\u061cc\u{e0041}", "a\\u200bb\\u061cc\\udb40\\udc41"],
    ["\u202ea\u2066b\u009b", "\\u202ea\\u2066b\\u009b"],
    ["\u2028\u2029\ufeff\x7f", "\\u2028\\u2029\\ufeff\\u007f"],
  ] as const
) {
  Deno.test(`printableText() of ${JSON.stringify(text)}`, () => {
    assertEquals(printableText(text), expected);
  });
}

Deno.test("printableText() keeps the value of a JSON text", () => {
  const value = { "\u009b\u202e": ["\x7f\u{e0041}", "\u2028"] };
  assertEquals(JSON.parse(printableText(JSON.stringify(value))), value);
});

Deno.test("printableLines() keeps line feeds and tabs, and no colour", () => {
  assertEquals(printableLines("a\n\tb\r\n\x1b[31mc"), "a\n\tb\\u000d\n\\u001b[31mc");
});

Deno.test("printableColors() keeps colours, and nothing else that begins like one", () => {
  assertEquals(printableColors("\x1b[1;31mred\x1b[0m\n"), "\x1b[1;31mred\x1b[0m\n");
  for (const other of ["\x1b[2J", "\x1b]0;title\x07", "\x1b[31;m\u009b2J", "\x1b[6n", "\x1bm"]) {
    const printed = printableColors(other).replace("\x1b[31;m", "");
    assertEquals(/\p{Cc}/u.test(printed), false, JSON.stringify(printed));
  }
});
