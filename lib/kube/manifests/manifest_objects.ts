/**
 * Reads the documents of a manifest file as objects of an API server.
 *
 * @module
 */
import * as v from "valibot";
import {
  apiVersionsOf,
  type KindSpec,
  type KubeObject,
  type ManifestFieldProblem,
} from "../../api/kind.ts";
import { ROUTING_ANNOTATIONS } from "../../api/kinds/routed_service.ts";
import { didYouMean, nearestName } from "../../api/nearest_name.ts";
import { schemaNode } from "../../api/schema_node.ts";
import { annotationFault, MODE_ANNOTATIONS, OWN_PREFIX } from "../../api/service_annotations.ts";
import { MAX_PLAIN_LENGTH, type YamlDocument } from "../../config/yaml_source.ts";
import { slimObject } from "../slim.ts";
import type { StringTable } from "../string_table.ts";
import type { FieldPath, ObjectReport } from "./manifest_problem.ts";

/** The fields that an item inherits from its list. */
export interface ManifestType {
  readonly apiVersion?: string;
  readonly kind?: string;
}

/** The kind of a dump, which has the objects of each kind in a list of their own. */
export const DUMP_KIND = "kube-relay dump";

/** Returns the item type of a list; `undefined` if `value` is not a list. */
export function itemTypeOf(value: unknown): ManifestType | undefined {
  const { kind, apiVersion } = typeOf(value);
  if (kind === undefined || !kind.endsWith("List") || !isMapping(value)) return undefined;
  const { items } = value;
  if (items !== undefined && items !== null && !Array.isArray(items)) return undefined;
  if (kind === "List") return {};
  return { kind: kind.slice(0, -"List".length), ...(apiVersion !== undefined && { apiVersion }) };
}

/**
 * Returns the kind of a YAML text if it is an ignored one; `undefined` if the text must be parsed.
 */
export function ignoredKindOf(
  text: string,
  kinds: ReadonlyMap<string, KindSpec>,
): string | undefined {
  const kind = /^kind: *["']?(\w+)["']?[ \r]*$/m.exec(text.slice(0, MAX_PLAIN_LENGTH))?.[1];
  return kind === undefined || kind.endsWith("List") || kinds.has(kind) ? undefined : kind;
}

/**
 * Returns the kind of a document, or the name of one that is not read. Reports what is wrong, and returns
 * `undefined`, if it cannot be told.
 */
export function kindOf(
  value: unknown,
  inherited: ManifestType,
  kinds: ReadonlyMap<string, KindSpec>,
  report: ObjectReport,
): KindSpec | string | undefined {
  const { kind, apiVersion } = { ...inherited, ...typeOf(value) };
  if (!isMapping(value)) {
    // Without the value: the file may be a private key that was named by mistake.
    const found = value === null
      ? "nothing"
      : Array.isArray(value)
      ? "a list"
      : typeof value === "string" && /[\0\uFFFD]/.test(value)
      ? "text that is not UTF-8; save the file as UTF-8"
      : `a ${typeof value}`;
    report.error({ path: [], message: `Expected an object, with fields, found ${found}` });
    return undefined;
  }
  if (kind === undefined || apiVersion === undefined) {
    const path = [kind === undefined ? "kind" : "apiVersion"];
    report.error({ path, value: value[path[0]!], message: "has to be there, as text" });
    return undefined;
  }
  const spec = kinds.get(kind);
  if (!spec) {
    const nearest = nearestName(kind, [...kinds.keys()]);
    if (nearest) {
      report.warn({
        path: ["kind"],
        value: kind,
        message: `is not read; did you mean ${nearest}?`,
      });
    }
    return kind;
  }
  const versions = apiVersionsOf(spec);
  if (versions.includes(apiVersion)) return spec;
  // Other API groups have kinds of these names too, such as Knative's Service.
  if (groupOf(apiVersion) !== spec.group) return `${kind} of ${apiVersion}`;
  const message = `has to be ${versions.join(" or ")} for kind ${kind}`;
  report.error({ path: ["apiVersion"], value: apiVersion, message });
  return undefined;
}

function typeOf(value: unknown): ManifestType {
  if (!isMapping(value)) return {};
  const { kind, apiVersion } = value;
  return {
    ...(typeof kind === "string" && { kind }),
    ...(typeof apiVersion === "string" && { apiVersion }),
  };
}

function groupOf(apiVersion: string): string {
  return apiVersion.includes("/") ? apiVersion.slice(0, apiVersion.indexOf("/")) : "";
}

/** An object and its kind. */
export interface ManifestObject {
  readonly spec: KindSpec;
  readonly object: KubeObject;
  /** Whether it is an invalid object without its invalid fields. */
  readonly isPartial?: true;
}

/** Each round finds what those before hid: the schema, rules across fields, and fields left out. */
const MOST_ROUNDS = 8;

/** Kind and key of an object, e.g. `Service default/web`: its name in problems, and its identity. */
export type ManifestObjectId = string;

/** Returns the identity of a raw object, even if it is invalid; `undefined` if it has no name. */
export function rawObjectId(
  { kind, namespaced }: KindSpec,
  value: unknown,
): ManifestObjectId | undefined {
  const metadata = isMapping(value) && isMapping(value["metadata"]) ? value["metadata"] : {};
  const { name, namespace } = metadata;
  if (typeof name !== "string" || name === "") return undefined;
  if (!namespaced) return `${kind} ${name}`;
  return `${kind} ${typeof namespace === "string" ? namespace : "default"}/${name}`;
}

/** Reads one raw object as an API server would. Returns `undefined` if the report has an error. */
export function readManifestObject(
  spec: KindSpec,
  document: Pick<YamlDocument, "value" | "isJson">,
  report: ObjectReport,
  strings: StringTable,
): ManifestObject | undefined {
  const { value, isJson } = document;
  for (const problem of unknownFields(spec, value)) report.warn(problem);
  const result = v.safeParse(spec.schema, value, { abortPipeEarly: true });
  if (!result.success) {
    const problems = result.issues.map(toProblem);
    for (const problem of problems) report.error(problem);
    // Other rules need fields of the right types; what they say of an invalid value adds nothing.
    if (result.typed) {
      const known = new Set(problems.map(({ path }) => path.join("\n")));
      const isNew = ({ path }: ManifestFieldProblem) => !known.has(path.join("\n"));
      spec.complete?.(result.output as never, {
        error: (problem) => isNew(problem) && report.error(problem),
        warn: (problem) => isNew(problem) && report.warn(problem),
      });
    }
    return undefined;
  }
  const manifest = spec.complete?.(result.output as never, report) ?? result.output;
  if (report.failed) return undefined;
  const kept = withoutServerFields(manifest, spec);
  const object = slimObject(spec, isJson ? kept : detach(kept), {
    strings,
    onProblem: ({ path, message }) => report.error({ path: [path], message }),
  });
  return object && { spec, object };
}

/**
 * Reads an invalid object without its invalid fields, whose names are in the `unknownFields` of what
 * contains them. Returns `undefined` if it cannot be identified.
 */
export function readPartialObject(
  spec: KindSpec,
  value: unknown,
  strings: StringTable,
): ManifestObject | undefined {
  const kept = detach(value);
  const known = new Set<string>();
  // What the schema finds hides what lies across fields.
  for (let round = 0; round < MOST_ROUNDS; round++) {
    const paths: FieldPath[] = [];
    const result = v.safeParse(spec.schema, kept);
    for (const issue of result.issues ?? []) paths.push(toProblem(issue).path);
    const manifest = result.success && spec.complete
      ? spec.complete(result.output as never, { error: ({ path }) => paths.push(path), warn() {} })
      : result.output;
    // A field that was left out may be missed.
    const found = paths.filter((path) => !known.has(path.join("\n")));
    if (result.success && found.length === 0) {
      const own = detach(withoutServerFields(manifest, spec));
      const object = slimObject(spec, own, { strings, onProblem() {} });
      return object && { spec, object, isPartial: true };
    }
    for (const path of found) {
      if (!leaveOut(kept, spec.schema, path)) return undefined;
      known.add(path.join("\n"));
    }
  }
  return undefined;
}

/** Leaves a field out of the nearest guarded object around it. Returns whether there is one. */
function leaveOut(value: unknown, schema: v.GenericSchema, path: FieldPath): boolean {
  const [key, ...rest] = path;
  const guarded = isGuarded(schema) && isMapping(value) ? value : undefined;
  if (key === undefined) {
    if (guarded) noteUnread(guarded);
    return guarded !== undefined;
  }
  const inner = partOf(schema, key);
  if (inner && typeof value === "object" && value !== null) {
    const holder = value as Record<string | number, unknown>;
    if (rest.length === 0 && isGuarded(inner) && !isMapping(holder[key])) {
      holder[key] = { unknownFields: [] };
      return true;
    }
    if (leaveOut(holder[key], inner, rest)) return true;
  }
  if (guarded === undefined) return false;
  delete guarded[key];
  noteUnread(guarded, String(key));
  return true;
}

/** The schema of a field, or of an item of a list. */
function partOf(schema: v.GenericSchema, key: string | number): v.GenericSchema | undefined {
  const { node } = schemaNode(schema);
  return node.type === "list" ? node.item : node.type === "fields" ? node.entries[key] : undefined;
}

function isGuarded(schema: v.GenericSchema): boolean {
  const { node } = schemaNode(schema);
  return node.type === "fields" && node.isGuarded;
}

function noteUnread(holder: Record<string, unknown>, ...names: readonly string[]): void {
  const known = holder["unknownFields"];
  holder["unknownFields"] = [...Array.isArray(known) ? known : [], ...names];
}

function toProblem(issue: v.BaseIssue<unknown>): ManifestFieldProblem {
  const path = (issue.path ?? []).map(({ key }) => key as string | number);
  const isMissing = issue.path?.at(-1)?.origin === "key" && issue.input === undefined;
  return { path, value: issue.input, message: isMissing ? "is missing" : issue.message };
}

/** Exported objects have fields that have no meaning in a file. */
function withoutServerFields(manifest: unknown, { namespaced }: KindSpec): unknown {
  const { metadata, ...rest } = manifest as KubeObject;
  const { uid: _, resourceVersion: __, deletionTimestamp: ___, namespace, ...kept } = metadata;
  return {
    ...rest,
    metadata: namespaced ? { ...kept, namespace: namespace ?? "default" } : kept,
  };
}

/**
 * Returns a copy that shares no memory with its text: V8 keeps a substring as a view, so one name
 * would keep a file of megabytes in memory.
 */
function detach(value: unknown): unknown {
  return JSON.parse(JSON.stringify(value));
}

/** Whether a value of YAML is a mapping. */
export function isMapping(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The annotations of a Service that have kube-relay's prefix, without it. */
const OWN_ANNOTATIONS = [...MODE_ANNOTATIONS, ...ROUTING_ANNOTATIONS].flatMap((name) =>
  name.startsWith(OWN_PREFIX) ? [name.slice(OWN_PREFIX.length)] : []
);

/**
 * Returns the fields of a raw object that its kind does not have, the annotations of kube-relay that do
 * not exist, and those whose values are not used: mostly typing errors.
 */
export function unknownFields(
  { kind, schema }: KindSpec,
  raw: unknown,
): readonly ManifestFieldProblem[] {
  const found: ManifestFieldProblem[] = [];
  const path: (string | number)[] = [];
  const add = (value: unknown, what: string, known: readonly string[], prefix = "") => {
    const name = String(path.at(-1)).slice(prefix.length);
    const message = `is no ${what}${didYouMean(name, known, prefix)}`;
    found.push({ path: [...path], value, message });
  };
  const visit = (value: unknown, schema: v.GenericSchema) => {
    if (typeof value !== "object" || value === null) return;
    const { node } = schemaNode(schema);
    if (Array.isArray(value)) {
      if (node.type !== "list") return;
      for (let key = 0; key < value.length; key++) enter(key, value[key], node.item);
    } else if (node.type === "names" && path.at(-1) === "annotations") {
      for (const [key, text] of Object.entries(value)) {
        if (!key.startsWith(OWN_PREFIX)) continue;
        path.push(key);
        if (!OWN_ANNOTATIONS.includes(key.slice(OWN_PREFIX.length))) {
          add(text, "annotation of kube-relay", OWN_ANNOTATIONS, OWN_PREFIX);
        } else if (typeof text === "string") {
          const fault = annotationFault(key, text);
          if (fault) {
            found.push({ path: [...path], value: text, message: `${fault}; it is not used` });
          }
        }
        path.pop();
      }
    } else if (node.type === "fields") {
      for (const key of Object.keys(value)) {
        const child: unknown = Reflect.get(value, key);
        if (Object.hasOwn(node.entries, key)) {
          enter(key, child, node.entries[key]!);
        } else if (!node.isOpen && !node.unread.includes(key)) {
          path.push(key);
          add(child, `field of kind ${kind}`, [...Object.keys(node.entries), ...node.unread]);
          path.pop();
        }
      }
    }
  };
  const enter = (key: string | number, value: unknown, schema: v.GenericSchema) => {
    if (typeof value !== "object") return;
    path.push(key);
    visit(value, schema);
    path.pop();
  };
  visit(raw, schema);
  return found;
}
