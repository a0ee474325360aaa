import { assertEquals } from "@std/assert";
import { asOneLine, startOf } from "./held_nft_text.ts";

Deno.test("asOneLine() ends each command, and leaves what is within braces together", () => {
  for (
    const [text, line] of [
      ["", ""],
      ["add table ip t\n", "add table ip t;"],
      ["add table ip t\n\nadd chain ip t c\n", "add table ip t; add chain ip t c;"],
      [
        "add element ip t s {\n  10.0.0.1,\n  10.0.0.2\n}\n",
        "add element ip t s {   10.0.0.1,   10.0.0.2 };",
      ],
      ['add rule ip t c comment "a } # b" drop\n', 'add rule ip t c comment "a } # b" drop;'],
      [
        "add table ip t { chain c {\n} }\nlist tables",
        "add table ip t { chain c { } }; list tables;",
      ],
    ] as const
  ) {
    assertEquals(asOneLine(text), line, text);
  }
});

Deno.test("asOneLine() refuses what a line editor or a longer line would read otherwise", () => {
  for (
    const text of [
      "add table ip t\t\n",
      "add table ip t # mine\nadd table ip u\n",
      "add table ip t \\\n",
      'add rule ip t c comment "é"\n',
      'add rule ip t c comment "a\nb"\n',
      "add set ip t s {\n",
      "table ip t {\n  chain c {\n    counter\n    accept\n  }\n}\n",
      "\u0004",
    ]
  ) {
    assertEquals(asOneLine(text), undefined, text);
  }
});

Deno.test("startOf() returns the input that it was given, however much of it was read", () => {
  for (const [input, start] of [["four", "four"], [["fo", "ur"], "four"], [[], ""]] as const) {
    const { whole, ...rest } = startOf(input, 4);
    assertEquals(rest, { start });
    assertEquals([...whole].join(""), start);
  }
  for (const input of ["fives", ["fi", "ves", "", "more"], ["fives"]]) {
    const { whole, ...rest } = startOf(input, 4);
    assertEquals(rest, { start: undefined });
    assertEquals([...whole].join(""), [...input].join(""));
  }
});
