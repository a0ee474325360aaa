/**
 * Reads one object of a manifest: checks its types, fills in defaults and drops unused fields.
 *
 * @module
 */
import * as v from "valibot";
import type { KindSpec, KubeObject, ManifestFieldProblem } from "../../api/kind.ts";
import { slimObject } from "../slim.ts";
import type { StringTable } from "../string_table.ts";
import { unknownFields } from "./manifest_fields.ts";
import type { ObjectReport } from "./manifest_report.ts";

/** An object and its kind. */
export interface ManifestObject {
  readonly spec: KindSpec;
  readonly object: KubeObject;
}

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
  for (const { path, value: found, nearest } of unknownFields(spec, value)) {
    const message = `is no field of kind ${spec.kind}${
      nearest ? `; did you mean '${nearest}'?` : ""
    }`;
    report.warn({ path, value: found, message });
  }
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

function isMapping(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
