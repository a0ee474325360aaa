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
import { MODE_ANNOTATIONS, OWN_PREFIX } from "../../api/service_annotations.ts";
import { MAX_PLAIN_LENGTH, type YamlDocument } from "../../config/yaml_source.ts";
import { slimObject } from "../slim.ts";
import type { StringTable } from "../string_table.ts";
import { type FieldPath, type ManifestProblems, ObjectReport } from "./manifest_problem.ts";

/** The result of one object of a document. */
export type ManifestOutcome =
  | { readonly outcome: "read"; readonly entry: ManifestObject }
  /** Invalid; without an id, its name could not be read. */
  | {
    readonly outcome: "refused";
    readonly id: ManifestObjectId | undefined;
    /** The object without its invalid fields, of a kind whose absence would open something. */
    readonly rest?: ManifestObject | undefined;
  }
  | { readonly outcome: "ignored"; readonly kind: string };

/** The fields that an item inherits from its list. */
export interface ManifestType {
  readonly apiVersion?: string;
  readonly kind?: string;
}

/** Inputs of {@linkcode readManifestObjects} besides the document. */
interface ManifestReading {
  readonly problems: ManifestProblems;
  readonly strings: StringTable;
  /** The kinds to read, by name. */
  readonly kinds: ReadonlyMap<string, KindSpec>;
  /** Type of an item of a split list. */
  readonly itemOf?: ManifestType;
}

/** The kind of a dump, which has the objects of each kind in a list of their own. */
export const DUMP_KIND = "kube-relay dump";

/** Deepest nesting of lists, which no real file needs. */
const DEEPEST_LIST = 3;

/**
 * Reads the objects of a document: one, or those of a list. Reports and refuses objects with
 * errors.
 */
export function readManifestObjects(
  document: YamlDocument,
  reading: ManifestReading,
): readonly ManifestOutcome[] {
  // Documents that are empty or contain only comments.
  if (document.value === null || document.value === undefined) return [];
  const { itemOf } = reading;
  const found = { value: document.value, root: [], type: itemOf ?? {}, depth: itemOf ? 1 : 0 };
  return collect(document, reading, found);
}

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

/** What is read of a document: a value in it, and what it inherits from the lists around it. */
interface Found {
  readonly value: unknown;
  readonly root: FieldPath;
  readonly type: ManifestType;
  readonly depth: number;
}

function collect(
  document: YamlDocument,
  reading: ManifestReading,
  { value, root, type, depth }: Found,
): readonly ManifestOutcome[] {
  const itemType = itemTypeOf(value);
  if (itemType && depth < DEEPEST_LIST) {
    const items = (value as { items?: unknown[] | null }).items ?? [];
    return items.flatMap((item, index) => {
      const at = [...root, "items", index];
      return collect(document, reading, {
        value: item,
        root: at,
        type: itemType,
        depth: depth + 1,
      });
    });
  }
  const { problems, strings, kinds } = reading;
  if (isMapping(value) && value["kind"] === DUMP_KIND && isMapping(value["objects"])) {
    const { objects } = value;
    return [...kinds.values()].flatMap((spec) => {
      const items = objects[spec.plural];
      const type = { kind: spec.kind, apiVersion: apiVersionsOf(spec)[0]! };
      return (Array.isArray(items) ? items : []).flatMap((item: unknown, index) => {
        const at = [...root, "objects", spec.plural, index];
        return collect(document, reading, { value: item, root: at, type, depth: DEEPEST_LIST });
      });
    });
  }
  const ownType = { ...type, ...typeOf(value) };
  const spec = knownKind(
    ownType,
    value,
    kinds,
    new ObjectReport(document, root, problems, undefined),
  );
  if (spec === "ignored") {
    const { kind = "", apiVersion } = ownType;
    return [{ outcome: "ignored", kind: kind + (kinds.has(kind) ? ` of ${apiVersion}` : "") }];
  }
  if (spec === "refused") return [{ outcome: "refused", id: undefined }];
  const id = rawObjectId(spec, value);
  const report = new ObjectReport(document, root, problems, id ?? spec.kind);
  const isDetached = document.isJson;
  const entry = readManifestObject(spec, value, { report, strings, isDetached });
  if (entry) return [{ outcome: "read", entry }];
  const rest = id !== undefined && spec.restricts
    ? readPartialObject(spec, value, strings)
    : undefined;
  return [{ outcome: "refused", id, rest }];
}

function knownKind(
  { kind, apiVersion }: ManifestType,
  value: unknown,
  kinds: ReadonlyMap<string, KindSpec>,
  report: ObjectReport,
): KindSpec | "ignored" | "refused" {
  if (!isMapping(value)) {
    // Without the value: the file may be a private key that was named by mistake.
    const found = value === null
      ? "nothing"
      : Array.isArray(value)
      ? "a list"
      : `a ${typeof value}`;
    report.error({ path: [], message: `Expected an object, with fields, found ${found}` });
    return "refused";
  }
  if (kind === undefined || apiVersion === undefined) {
    const path = [kind === undefined ? "kind" : "apiVersion"];
    report.error({ path, value: value[path[0]!], message: "has to be there, as text" });
    return "refused";
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
    return "ignored";
  }
  const versions = apiVersionsOf(spec);
  if (versions.includes(apiVersion)) return spec;
  // Other API groups have kinds of these names too, such as Knative's Service.
  if (groupOf(apiVersion) !== spec.group) return "ignored";
  const message = `has to be ${versions.join(" or ")} for kind ${kind}`;
  report.error({ path: ["apiVersion"], value: apiVersion, message });
  return "refused";
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
function rawObjectId(
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
function readManifestObject(
  spec: KindSpec,
  value: unknown,
  { report, strings, isDetached }: {
    readonly report: ObjectReport;
    readonly strings: StringTable;
    /** Whether the texts of the object share no memory with the file. */
    readonly isDetached: boolean;
  },
): ManifestObject | undefined {
  for (const problem of unknownFields(spec, value)) report.warn(problem);
  const result = v.safeParse(spec.schema, value, { abortPipeEarly: true });
  if (!result.success) {
    for (const issue of result.issues) report.error(toProblem(issue));
    return undefined;
  }
  const manifest = spec.complete?.(result.output as never, report) ?? result.output;
  if (report.failed) return undefined;
  const kept = withoutServerFields(manifest, spec);
  const object = slimObject(spec, isDetached ? kept : detach(kept), {
    strings,
    onProblem: ({ path, message }) => report.error({ path: [path], message }),
  });
  return object && { spec, object };
}

/**
 * Reads an invalid object without its invalid fields, whose names are in the `unknownFields` of what
 * contains them. Returns `undefined` if it cannot be identified.
 */
function readPartialObject(
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
function isMapping(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

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
  collectUnknown(raw, schema, found);
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

function collectUnknown(
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
      if (typeof item === "object") collectUnknown(item, node.item, found, { key, parent });
    }
  }
  if (Array.isArray(value)) return;
  if (node.type === "names" && parent?.key === "annotations") collectOwn(value, found, parent);
  if (node.type !== "fields") return;
  for (const key of Object.keys(value)) {
    const child: unknown = Reflect.get(value, key);
    if (Object.hasOwn(node.entries, key)) {
      if (typeof child === "object") {
        collectUnknown(child, node.entries[key]!, found, { key, parent });
      }
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
