/**
 * Reads one object of a manifest: checks its types, fills in defaults and drops unused fields.
 *
 * @module
 */
import * as v from "valibot";
import type { KindSpec, KubeObject, ManifestFieldProblem } from "../../api/kind.ts";
import { schemaNode } from "../../api/schema_node.ts";
import { slimObject } from "../slim.ts";
import type { StringTable } from "../string_table.ts";
import { unknownFields } from "./manifest_fields.ts";
import type { FieldPath } from "./manifest_problem.ts";
import type { ObjectReport } from "./manifest_report.ts";

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
