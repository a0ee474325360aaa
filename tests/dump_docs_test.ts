/**
 * docs/dump.md lists the fields of a dump as the table in the code has them. `UPDATE_DOCS=1` writes
 * the list.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import { dumpFieldsText } from "./support/docs/dump_fields.ts";

const PAGE = new URL("../docs/dump.md", import.meta.url);
const LIST = /(## Every field\n[\s\S]*?```\n)([\s\S]*?)(\n```)/;

Deno.test("docs/dump.md lists every field of a dump", async () => {
  const text = await Deno.readTextFile(PAGE);
  assert(LIST.test(text), "the page has no list");
  const wanted = text.replace(LIST, (_, before, __, after) => before + dumpFieldsText() + after);
  if (Deno.env.get("UPDATE_DOCS") === "1") await Deno.writeTextFile(PAGE, wanted);
  assertEquals(await Deno.readTextFile(PAGE), wanted);
});

Deno.test("a dump has no field that its page excludes", () => {
  for (
    const name of ["clientConnection", "kubeconfig", "token", "environment", "master", "node-args"]
  ) {
    assertEquals(dumpFieldsText().includes(name), false, name);
  }
});
