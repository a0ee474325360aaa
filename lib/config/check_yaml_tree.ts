import { type Document, isAlias, isMap, visit, type YAMLMap } from "yaml";
import { keyOf, startOf } from "./text_position.ts";

/** Most aliases that are followed in one document, including those inside their targets. */
export const MAX_ALIASES = 100;

/** Reports a problem at an offset of the text. */
export type ReportYamlError = (offset: number, message: string) => void;

/** Takes the problems of a document. */
interface Findings {
  readonly fail: ReportYamlError;
  /** Called for each repeated key. */
  readonly onSameKey: ReportYamlError;
}

/**
 * Finds faults that the parser accepts or for which it takes too long: repeated keys, keys that
 * would set a prototype, aliases without an anchor or inside of it, and too many aliases.
 * `alias.resolve()` walks the whole document for each alias, so the anchors are recorded here.
 */
export function checkYamlTree(document: Document, { fail, onSameKey }: Findings): void {
  const anchors = new Map<string, unknown>();
  let aliases = 0;
  visit(document, {
    Node(_, node, ancestors) {
      if (isMap(node)) checkKeys(node, { fail, onSameKey });
      if (!isAlias(node)) {
        if (node.anchor !== undefined) anchors.set(node.anchor, node);
        return undefined;
      }
      const source = anchors.get(node.source);
      if (++aliases > MAX_ALIASES) {
        fail(startOf(node), `Cannot read YAML: more than ${MAX_ALIASES} aliases in one document`);
        return visit.BREAK;
      }
      if (!source) {
        fail(startOf(node), "Cannot read YAML: no anchor of this name before this alias");
      } else if (ancestors.some((ancestor) => ancestor === source)) {
        fail(startOf(node), "Cannot read YAML: this alias is inside its own anchor");
      }
      return undefined;
    },
  });
}

function checkKeys(map: YAMLMap, { fail, onSameKey }: Findings): void {
  const seen = new Set<string>();
  for (const pair of map.items) {
    const key = keyOf(pair);
    if (key === "__proto__") fail(startOf(pair.key), `Cannot read YAML: '${key}' is no field name`);
    if (seen.has(key)) {
      onSameKey(startOf(pair.key), `Cannot read YAML: key ${nameOf(key)}is repeated here`);
    }
    seen.add(key);
  }
}

/** Returns a key that may be the name of a field, and no other. */
function nameOf(key: string): string {
  return /^[A-Za-z][\w./-]{0,62}$/.test(key) ? `'${key}' ` : "";
}
