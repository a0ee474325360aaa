/**
 * One object of a manifest: its shape is checked, defaults are filled in, what nobody reads is dropped.
 *
 * @module
 */
import { type KubeKinds, objectKey } from "../../api/objects.ts";
import { completeEndpoints, completeEndpointSlice } from "./manifest_endpoints.ts";
import { unknownFields } from "./manifest_fields.ts";
import type { ObjectReport } from "./manifest_report.ts";
import { type CheckedManifest, checkShape } from "./manifest_schema.ts";
import { completeService } from "./manifest_service.ts";
import { slimObject } from "../slim.ts";
import type { StringTable } from "../string_table.ts";

/** An object and its kind. */
export type ManifestObject = {
  readonly [K in keyof KubeKinds]: { readonly kind: K; readonly object: KubeKinds[K] };
}[keyof KubeKinds];

/** Kind and key of an object, e.g. `Service default/web`: how it is called in problems, and its identity. */
export type ManifestObjectId = string;

/** The identity of an object. */
export function manifestObjectId({ kind, object }: ManifestObject): ManifestObjectId {
  return `${kind} ${objectKey(object)}`;
}

/** The identity of a raw object, whatever else is wrong with it; `undefined` when it has no name. */
export function rawObjectId(kind: keyof KubeKinds, value: unknown): ManifestObjectId | undefined {
  const metadata = isMapping(value) && isMapping(value["metadata"]) ? value["metadata"] : {};
  const { name, namespace } = metadata;
  if (typeof name !== "string" || name === "") return undefined;
  if (!isNamespaced(kind)) return `${kind} ${name}`;
  return `${kind} ${typeof namespace === "string" ? namespace : "default"}/${name}`;
}

/** Reads one raw object as an API server would take it. Returns `undefined` when the report says why not. */
export function readManifestObject<K extends keyof KubeKinds>(
  kind: K,
  value: unknown,
  { report, strings }: { readonly report: ObjectReport; readonly strings: StringTable },
): ManifestObject | undefined {
  for (const { path, value: found, nearest } of unknownFields(kind, value)) {
    const message = `is no field of kind ${kind}${nearest ? `; did you mean '${nearest}'?` : ""}`;
    report.warn({ path, value: found, message });
  }
  const shape = checkShape(kind, value);
  if ("issues" in shape) {
    for (const issue of shape.issues) report.error(issue);
    return undefined;
  }
  const completers: {
    [Kind in keyof KubeKinds]: (
      checked: CheckedManifest<Kind>,
      report: ObjectReport,
    ) => CheckedManifest<Kind>;
  } = COMPLETERS;
  const complete = completers[kind](shape.checked, report);
  if (report.failed) return undefined;
  const { namespace, ...metadata } = complete.metadata;
  const raw = {
    ...complete,
    metadata: isNamespaced(kind) ? { ...metadata, namespace: namespace ?? "default" } : metadata,
  };
  const object = slimObject(kind, detach(raw), {
    strings,
    onProblem: ({ path, message }) => report.error({ path: [path], message }),
  });
  return object && { kind, object } as ManifestObject;
}

const COMPLETERS = {
  Service: completeService,
  EndpointSlice: completeEndpointSlice,
  Endpoints: completeEndpoints,
  Node: (node: CheckedManifest<"Node">) => node,
  ServiceCIDR: (serviceCidr: CheckedManifest<"ServiceCIDR">) => serviceCidr,
};

/**
 * A copy that shares no memory with the text it was read from: V8 keeps a string that was cut out
 * of another as a view of it, so that one name would keep a file of megabytes in memory.
 */
function detach(value: unknown): unknown {
  return JSON.parse(JSON.stringify(value));
}

function isNamespaced(kind: keyof KubeKinds): boolean {
  return kind !== "Node" && kind !== "ServiceCIDR";
}

function isMapping(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
