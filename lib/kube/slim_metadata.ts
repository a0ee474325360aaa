/**
 * Metadata of raw objects → what is read of it.
 *
 * @module
 */
import type { ObjectMeta } from "../api/objects.ts";
import { MODE_ANNOTATIONS } from "../proxy/mode_annotations.ts";
import { SERVICE_NAME_LABEL } from "../api/service_name_label.ts";
import {
  optionalObject,
  optionalString,
  present,
  type RawFields,
  requiredObject,
  requiredString,
} from "./raw_fields.ts";
import type { StringTable } from "./string_table.ts";

/** The labels that anything reads: they decide for whom an object is, and where a node stands. */
export const READ_LABELS = [
  SERVICE_NAME_LABEL,
  "service.kubernetes.io/headless",
  "service.kubernetes.io/service-proxy-name",
  "endpointslice.kubernetes.io/skip-mirror",
  "topology.kubernetes.io/zone",
] as const;

/** The annotations that anything reads. */
const ANNOTATIONS = [
  "endpoints.kubernetes.io/last-change-trigger-time",
  "endpoints.kubernetes.io/over-capacity",
  // Of Nodes: how k3s was started there.
  "k3s.io/node-args",
  ...MODE_ANNOTATIONS,
] as const;

/** Keeps what is read of the metadata of a raw object. */
export function slimMetadata(raw: RawFields, strings: StringTable): ObjectMeta {
  return requiredObject(raw, "metadata", (metadata) =>
    present({
      name: requiredString(metadata, "name"),
      namespace: repeated(metadata, { name: "namespace", strings }),
      resourceVersion: optionalString(metadata, "resourceVersion"),
      labels: optionalObject(metadata, "labels", (labels) => pick(labels, READ_LABELS)),
      annotations: optionalObject(metadata, "annotations", (all) => pick(all, ANNOTATIONS)),
      deletionTimestamp: optionalString(metadata, "deletionTimestamp"),
      // Whole seconds: objects made together share it.
      creationTimestamp: repeated(metadata, { name: "creationTimestamp", strings }),
    }));
}

/** As {@linkcode slimMetadata}, with the uid: 36 bytes that are kept only where an event may need them. */
export function slimMetadataWithUid(raw: RawFields, strings: StringTable): ObjectMeta {
  const uid = requiredObject(raw, "metadata", (metadata) => optionalString(metadata, "uid"));
  return { ...slimMetadata(raw, strings), ...(uid !== undefined && { uid }) };
}

function pick(raw: RawFields, names: readonly string[]): Record<string, string> | undefined {
  let found: Record<string, string> | undefined;
  for (const name of names) {
    const value = optionalString(raw, name);
    if (value === undefined) continue;
    found ??= {};
    found[name] = value;
  }
  return found;
}

/** An optional string that many objects share. */
export function repeated(
  raw: RawFields,
  { name, strings }: { readonly name: string; readonly strings: StringTable },
): string | undefined {
  const value = optionalString(raw, name);
  return value === undefined ? undefined : strings.intern(value);
}
