import { assertEquals, assertStrictEquals } from "@std/assert";
import { StringTable } from "./string_table.ts";

Deno.test("StringTable.intern() continues after more strings than it holds", () => {
  const strings = new StringTable();
  for (let index = 0; index < 50_000; index++) {
    assertEquals(strings.intern(`name-${index}`), `name-${index}`);
  }
});

Deno.test("StringTable.share() gives one value for equal ones, also after more than it holds", () => {
  const strings = new StringTable();
  for (let index = 0; index < 5_000; index++) {
    const first = strings.share({ app: `a-${index}` });
    assertEquals(first, { app: `a-${index}` });
    assertStrictEquals(strings.share({ app: `a-${index}` }), first);
  }
  assertEquals(strings.share(undefined), undefined);
});

Deno.test("StringTable gives the text of the bytes, also where its characters are the bytes of another one", () => {
  const strings = new StringTable();
  // Each text, written as UTF-8, is the characters of the next one.
  for (const text of ["é", "Ã©", "Ã\u0083Â©", "a\u0080", "aÂ\u0080"]) {
    const bytes = new TextEncoder().encode(text);
    const read = () => strings.ofBytes(bytes, 0, bytes.length) ?? strings.internAscii(text);
    assertEquals([read(), read()], [text, text]);
  }
  for (const text of ["Ã©", "é"]) {
    const bytes = new TextEncoder().encode(text);
    assertEquals(strings.ofBytes(bytes, 0, bytes.length) ?? text, text);
  }
});

Deno.test("StringTable.ofBytes() finds the text of equal bytes", () => {
  const strings = new StringTable();
  const node = strings.ofBytes(new TextEncoder().encode("node-1"), 0, 6);
  assertEquals([node, strings.internAscii("node-1")], [undefined, "node-1"]);
  assertEquals(strings.ofBytes(new TextEncoder().encode("xnode-1"), 1, 7), "node-1");
  assertEquals(strings.ofBytes(new TextEncoder().encode("node-2"), 0, 6), undefined);
});
