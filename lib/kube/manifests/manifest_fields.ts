import type * as v from "valibot";
import type { KindSpec, ManifestFieldProblem } from "../../api/kind.ts";
import { ROUTING_ANNOTATIONS } from "../../api/kinds/routed_service.ts";
import { didYouMean } from "../../api/nearest_name.ts";
import { schemaNode } from "../../api/schema_node.ts";
import { MODE_ANNOTATIONS, OWN_PREFIX } from "../../api/service_annotations.ts";
import type { FieldPath } from "./manifest_problem.ts";

/** The annotations of a Service that have kube-relay's prefix, without it. */
const OWN_ANNOTATIONS = [...MODE_ANNOTATIONS, ...ROUTING_ANNOTATIONS].flatMap((name) =>
  name.startsWith(OWN_PREFIX) ? [name.slice(OWN_PREFIX.length)] : []
);

/**
 * Returns the fields of a raw object that its kind does not have, and the annotations of kube-relay that
 * do not exist: mostly typing errors.
 */
export function unknownFields(
  { kind, schema }: KindSpec,
  raw: unknown,
): readonly ManifestFieldProblem[] {
  const found: UnknownField[] = [];
  collect(raw, schema, found);
  return found.map(({ place, value, known, prefix = "" }) => {
    const name = String(place.key).slice(prefix.length);
    const what = prefix === "" ? `field of kind ${kind}` : "annotation of kube-relay";
    const message = `is no ${what}${didYouMean(name, known, prefix)}`;
    return { path: pathOf(place), value, message };
  });
}

/** A field or annotation that does not exist. */
interface UnknownField {
  readonly place: Place;
  readonly value: unknown;
  readonly known: readonly string[];
  /** Of the known names, and of this one. */
  readonly prefix?: string;
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
  if (Array.isArray(value)) return;
  if (node.type === "names" && parent?.key === "annotations") collectOwn(value, found, parent);
  if (node.type !== "fields") return;
  for (const key of Object.keys(value)) {
    const child: unknown = Reflect.get(value, key);
    if (Object.hasOwn(node.entries, key)) {
      if (typeof child === "object") collect(child, node.entries[key]!, found, { key, parent });
    } else if (!node.isOpen && !node.unread.includes(key)) {
      const known = [...Object.keys(node.entries), ...node.unread];
      found.push({ place: { key, parent }, value: child, known });
    }
  }
}

/** Collects annotations of kube-relay that do not exist. */
function collectOwn(annotations: object, found: UnknownField[], parent: Place): void {
  for (const [key, value] of Object.entries(annotations)) {
    if (!key.startsWith(OWN_PREFIX) || OWN_ANNOTATIONS.includes(key.slice(OWN_PREFIX.length))) {
      continue;
    }
    const place = { key, parent };
    found.push({ place, value, known: OWN_ANNOTATIONS, prefix: OWN_PREFIX });
  }
}

function pathOf({ key, parent }: Place): FieldPath {
  return parent === undefined ? [key] : [...pathOf(parent), key];
}
