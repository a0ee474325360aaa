import { assertEquals, assertThrows } from "@std/assert";
import { extractBlocks } from "./markdown_blocks.ts";
import { parseShell } from "./shell_commands.ts";

const words = (text: string) => parseShell(text).map((command) => command.words);

Deno.test("parseShell() finds every program, whatever joins them", () => {
  assertEquals(words("a 1 && b | c; d # e\n(f)\n\n# g\n"), [["a", "1"], ["b"], ["c"], ["d"], [
    "f",
  ]]);
});

Deno.test("parseShell() joins continued lines and removes quotes", () => {
  assertEquals(words(`a --b='{"c": 1}' \\\n  "d e"f g\\ h`), [[
    "a",
    '--b={"c": 1}',
    "d ef",
    "g h",
  ]]);
});

Deno.test("parseShell() keeps files of redirections apart", () => {
  assertEquals(parseShell("a >b 2 <c"), [{ words: ["a", "2"], files: ["b", "c"] }]);
});

for (const text of ["a $(b)", "a `b`", "cat <<E\n", "a & b", "a 'b"]) {
  Deno.test(`parseShell() refuses ${JSON.stringify(text)} rather than overlook something`, () => {
    assertThrows(() => parseShell(text), SyntaxError, "Cannot read shell at");
  });
}

Deno.test("extractBlocks() removes the indentation of lists and returns the lines", () => {
  const page = "x\n```sh\na\n```\n- y\n\n  ```yaml\n  b:\n    c\n  ```\n";
  assertEquals(extractBlocks(page), [
    { language: "sh", text: "a\n", line: 3 },
    { language: "yaml", text: "b:\n  c\n", line: 8 },
  ]);
});

Deno.test("extractBlocks() refuses a block without an end", () => {
  assertThrows(() => extractBlocks("```sh\na\n"), SyntaxError, "line 2 has no end");
});
