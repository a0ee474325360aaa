/**
 * The fields of a dump as docs/dump.md lists them.
 *
 * @module
 */
import type * as v from "valibot";
import { DUMP_SCHEMA } from "../../../lib/tools/dump/dump_schema.ts";
import { wrapText } from "../../../lib/config/wrap_text.ts";

/** The part of a schema that describes its content. */
interface SchemaShape {
  readonly entries?: Readonly<Record<string, v.GenericSchema>>;
  readonly item?: v.GenericSchema;
  readonly wrapped?: v.GenericSchema;
  readonly value?: v.GenericSchema;
}

const WIDTH = 96;

/** One paragraph for each object: its path, and the names of its values. */
export function dumpFieldsText(): string {
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
