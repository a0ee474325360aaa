import { assert, assertEquals } from "@std/assert";
import { defaultConfiguration } from "./configuration.ts";
import { FLAG_ROWS } from "./flags.ts";
import { parseFlagValue } from "./parse_flags.ts";

const TYPE_OF_FIELD: Readonly<Record<string, string>> = {
  boolean: "boolean",
  text: "string",
  integer: "number",
  duration: "number",
  number: "number",
  list: "object",
  gates: "object",
  vmodule: "object",
};

function fieldValue(path: string): unknown {
  return path.split(".").reduce<unknown>(
    (value, step) => Object(value)[step],
    defaultConfiguration(),
  );
}

Deno.test("FLAGS has names and aliases that are all different", () => {
  const names = FLAG_ROWS.flatMap(({ name, aliases = [] }) => [name, ...aliases]);
  assertEquals(names.length, new Set(names).size);
  for (const name of names) assert(/^[a-z][a-z-]*$/.test(name), name);
});

Deno.test("FLAGS names only fields that the configuration has, of the flag's own type", () => {
  for (const { name, field, alsoField, type } of FLAG_ROWS) {
    for (const path of [field, alsoField]) {
      if (path !== undefined) assertEquals(typeof fieldValue(path), TYPE_OF_FIELD[type], name);
    }
  }
});

Deno.test("FLAGS has defaults that the flag itself would accept", () => {
  for (const flag of FLAG_ROWS) {
    if (flag.default === undefined) continue;
    assert(flag.field === undefined, `${flag.name} has its default from its field`);
    assert("value" in parseFlagValue(flag, flag.default), flag.name);
  }
});

Deno.test("FLAGS never ignores with --config a flag that the file cannot express", () => {
  for (const { name, field, withConfig, deprecated } of FLAG_ROWS) {
    // kube-proxy's two port flags are parts of the fields of two others.
    if (deprecated === undefined) assertEquals(withConfig === "used", field === undefined, name);
  }
});
