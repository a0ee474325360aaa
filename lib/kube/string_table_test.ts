import { assertEquals } from "@std/assert";
import { StringTable } from "./string_table.ts";

Deno.test("StringTable.intern() gives an equal string", () => {
  const strings = new StringTable();
  for (const text of ["kube-system", "", "kube-system", "node-1"]) {
    assertEquals(strings.intern(text), text);
  }
});

Deno.test("StringTable.intern() goes on after more strings than it holds", () => {
  const strings = new StringTable();
  for (let index = 0; index < 50_000; index++) {
    assertEquals(strings.intern(`name-${index}`), `name-${index}`);
  }
});
