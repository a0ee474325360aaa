/**
 * docs/dump.md lists the fields of a dump as the table in the code has them. `UPDATE_DOCS=1` writes
 * the list.
 */
import { assert, assertEquals } from "@std/assert";
import type * as v from "valibot";
import { DUMP_SCHEMA } from "../lib/tools/dump/dump_schema.ts";
import { wrapText } from "../lib/config/wrap_text.ts";

/** The part of a schema that describes its content. */
interface SchemaShape {
  readonly entries?: Readonly<Record<string, v.GenericSchema>>;
  readonly item?: v.GenericSchema;
  readonly wrapped?: v.GenericSchema;
  readonly value?: v.GenericSchema;
}

const WIDTH = 96;

/** One paragraph for each object: its path, and the names of its values. */
function dumpFieldsText(): string {
  const groups = new Map<string, Set<string>>();
  collect(DUMP_SCHEMA, { path: "", groups });
  return [...groups].map(([path, names]) => {
    return `${path === "" ? "the dump" : path}:\n${wrapText([...names].join(", "), WIDTH, 2)}`;
  }).join("\n");
}

interface Collecting {
  readonly path: string;
  readonly groups: Map<string, Set<string>>;
}

/** Notes the values of an object; resolves what is around one. */
function collect(schema: v.GenericSchema, { path, groups }: Collecting): boolean {
  const { entries, item, wrapped, value } = schema as unknown as SchemaShape;
  if (wrapped) return collect(wrapped, { path, groups });
  if (item) return collect(item, { path: `${path}[]`, groups });
  if (value) return collect(value, { path: `${path}.*`, groups });
  if (!entries) return false;
  for (const [name, inner] of Object.entries(entries)) {
    const below = path === "" ? name : `${path}.${name}`;
    if (collect(inner, { path: below, groups })) continue;
    const names = groups.get(path) ?? new Set();
    groups.set(path, names.add(name));
  }
  return true;
}

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
