/**
 * Finds fields that mean nothing. They are no error: a file for a newer kube-proxy has to work.
 *
 * @module
 */
import type { FieldTree } from "./configuration_schema.ts";
import { didYouMean } from "./nearest_name.ts";

/** Fields of older kube-proxies, and what to do in their place. */
const RETIRED_FIELDS: ReadonlyMap<string, string> = new Map([
  ["udpIdleTimeout", "it belonged to the old userspace mode; here it is --udp-timeout"],
  ["resourceContainer", "the supervisor chooses the control group"],
  ["conntrack.max", "use conntrack.maxPerCore and conntrack.min"],
]);

/** A field that is none. */
interface UnknownField {
  readonly path: readonly string[];
  /** What follows from it, with the name that was probably meant. */
  readonly message: string;
}

/** Every field of a value that the tree does not know. Below a field that is wrong nothing is reported. */
export function unknownFields(
  value: unknown,
  tree: FieldTree,
  parent: readonly string[] = [],
): readonly UnknownField[] {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return [];
  return Object.entries(value).flatMap(([name, inner]) => {
    const path = [...parent, name];
    if (Object.hasOwn(tree, name)) {
      const below = tree[name];
      return below === undefined ? [] : unknownFields(inner, below, path);
    }
    const field = path.join(".");
    const retired = RETIRED_FIELDS.get(field);
    if (retired !== undefined) {
      return [{ path, message: `Field '${field}' was retired: ${retired}` }];
    }
    const hint = didYouMean(name, Object.keys(tree));
    return [{ path, message: `Field '${field}' is unknown and ignored${hint}` }];
  });
}
