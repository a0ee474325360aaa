/** Label and field selectors, as far as kube-relay uses them. */
import type { RawObject } from "../../conformance/server.ts";

/** Whether an object is among those asked for. */
export type Selector = (object: RawObject) => boolean;

/** Fields that Services can be selected by; every kind has name and namespace. */
const SERVICE_FIELDS: ReadonlySet<string> = new Set(["spec.clusterIP", "spec.type"]);

/** Parses a label selector: `a=b`, `a!=b`, `a`, `!a`, joined by commas. */
export function parseLabelSelector(text: string | null): Selector {
  const terms = (text ?? "").split(",").filter((term) => term !== "").map(labelTerm);
  return (object) => terms.every((term) => term(object.metadata.labels ?? {}));
}

function labelTerm(term: string): (labels: Readonly<Record<string, string>>) => boolean {
  const [, negated, name, operator, value] = /^(!?)([^!=]+)(==?|!=)?(.*)$/.exec(term) ?? [];
  if (name === undefined) throw new RangeError(`unable to parse requirement: ${term}`);
  if (operator === "!=") return (labels) => labels[name] !== value;
  if (operator) return (labels) => labels[name] === value;
  return (labels) => (name in labels) !== (negated === "!");
}

/** Parses a field selector. Throws a RangeError with the server's words for a field it doesn't know. */
export function parseFieldSelector(
  text: string | null,
  options: { readonly kind: string; readonly clusterIpSelector: boolean },
): Selector {
  const terms = (text ?? "").split(",").filter((term) => term !== "").map((term) => {
    const [, path, operator, value] = /^([^!=]+)(==?|!=)(.*)$/.exec(term) ?? [];
    if (path === undefined) throw new RangeError(`invalid selector: '${term}'`);
    const isKnown = path === "metadata.name" || path === "metadata.namespace" ||
      (options.kind === "Service" && options.clusterIpSelector && SERVICE_FIELDS.has(path));
    if (!isKnown) throw new RangeError(`field label not supported: ${path}`);
    return (object: RawObject) => (fieldOf(object, path) === value) === (operator !== "!=");
  });
  return (object) => terms.every((term) => term(object));
}

function fieldOf(object: RawObject, path: string): string {
  let value: unknown = object;
  for (const name of path.split(".")) value = (value as Record<string, unknown>)?.[name];
  return typeof value === "string" ? value : "";
}
