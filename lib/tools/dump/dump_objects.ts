import * as v from "valibot";
import type { KindSpec, KubeObject } from "../../api/kind.ts";
import { schemaNode } from "../../api/schema_node.ts";
import {
  fields,
  flag,
  list,
  number,
  objectName,
  optional,
  plainText,
  portName,
} from "./dump_value.ts";

/** Objects, by the name of their resource. */
type DumpedObjects = Readonly<Record<string, readonly KubeObject[]>>;

/** The objects of these kinds, and of those that may be absent. */
export function dumpedObjects(
  kinds: readonly KindSpec[],
  { optional: others = [] }: { readonly optional?: readonly KindSpec[] } = {},
): v.GenericSchema<unknown, DumpedObjects> {
  const lists = fields(Object.fromEntries([
    ...kinds.map(({ plural, schema }) => [plural, list(dumpSchema(schema))] as const),
    ...others.map(({ plural, schema }) => [plural, optional(list(dumpSchema(schema)))] as const),
  ]));
  return lists as unknown as v.GenericSchema<unknown, DumpedObjects>;
}

/** The schema of a dump for a value of an object. */
function dumpSchema(schema: v.GenericSchema): v.GenericSchema {
  const { node } = schemaNode(schema);
  switch (node.type) {
    case "text":
      switch (node.format) {
        case "name":
          return objectName;
        case "port name":
          return portName;
        default:
          return plainText;
      }
    case "number":
      return number;
    case "flag":
      return flag;
    case "number or text":
      return v.union([number, portName]);
    case "list":
      return list(dumpSchema(node.item));
    case "names": {
      if (node.names === "all") return v.record(plainText, plainText);
      const names = node.names.filter((name) => !node.secret.includes(name));
      return fields(Object.fromEntries(names.map((name) => [name, optional(plainText)])));
    }
    case "fields":
      return fields(Object.fromEntries(
        Object.entries(node.entries).map(([name, entry]) => {
          const { isOptional, fallback } = schemaNode(entry);
          return [
            name,
            isOptional && fallback === undefined ? optional(dumpSchema(entry)) : dumpSchema(entry),
          ];
        }),
      ));
  }
}
