import { closest, distance } from "fastest-levenshtein";
import type * as v from "valibot";
import type { KindSpec } from "../../api/kind.ts";
import { schemaNode } from "../../api/schema_node.ts";
import type { FieldPath } from "./manifest_problem.ts";

/** A field that does not exist. */
interface UnknownField {
  readonly path: FieldPath;
  readonly value: unknown;
  /** The name that was probably meant. */
  readonly nearest: string | undefined;
}

/** Returns the fields of a raw object that its kind does not have: mostly typing errors. */
export function unknownFields({ schema }: KindSpec, raw: unknown): readonly UnknownField[] {
  const found: UnknownField[] = [];
  collect(raw, schema, found);
  return found;
}

/** Returns the name among `known` that is closest to `name`; `undefined` if none is close. */
export function nearestName(name: string, known: readonly string[]): string | undefined {
  // The distance costs the product of the lengths, and names in a manifest may be long.
  if (name.length > 64) return undefined;
  const best = closest(name.toLowerCase(), known.map((word) => word.toLowerCase()));
  const nearest = known.find((word) => word.toLowerCase() === best);
  const allowed = Math.max(1, Math.floor(name.length / 4));
  const isNear = distance(name.toLowerCase(), best) <= allowed ||
    // Swapped letters count double in a distance: "prot".
    lettersOf(name.toLowerCase()) === lettersOf(best);
  return isNear ? nearest : undefined;
}

function lettersOf(name: string): string {
  return [...name].sort().join("");
}

/**
 * A position in an object. Paths are built for unknown fields only: manifests have millions of
 * fields.
 */
interface Place {
  readonly key: string | number;
  readonly parent: Place | undefined;
}

function collect(
  value: unknown,
  schema: v.GenericSchema,
  found: UnknownField[],
  parent?: Place,
): void {
  if (typeof value !== "object" || value === null) return;
  const { node } = schemaNode(schema);
  if (node.type === "list" && Array.isArray(value)) {
    for (let key = 0; key < value.length; key++) {
      const item: unknown = value[key];
      if (typeof item === "object") collect(item, node.item, found, { key, parent });
    }
  }
  if (node.type !== "fields" || Array.isArray(value)) return;
  for (const key of Object.keys(value)) {
    const child: unknown = Reflect.get(value, key);
    if (Object.hasOwn(node.entries, key)) {
      if (typeof child === "object") collect(child, node.entries[key]!, found, { key, parent });
    } else if (!node.isOpen && !node.unread.includes(key)) {
      const nearest = nearestName(key, [...Object.keys(node.entries), ...node.unread]);
      found.push({ path: pathOf({ key, parent }), value: child, nearest });
    }
  }
}

function pathOf({ key, parent }: Place): FieldPath {
  return parent === undefined ? [key] : [...pathOf(parent), key];
}
