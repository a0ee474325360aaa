/**
 * core/v1 Namespace: its labels.
 *
 * @module
 */
import { defineKind, type ObjectOf } from "../kind.ts";
import { NAMESPACE_NAME_LABEL } from "../labels.ts";
import { dnsLabel, fields, metadata } from "../schema.ts";

/** core/v1 Namespace. */
export const NAMESPACE = defineKind({
  kind: "Namespace",
  group: "",
  versions: ["v1"],
  plural: "namespaces",
  namespaced: false,
  schema: fields(
    { metadata: metadata(dnsLabel, { labels: "all" }) },
    "apiVersion kind spec status",
  ),
  // An API server sets the label, whatever the manifest says.
  complete: ({ metadata }) => ({
    metadata: {
      ...metadata,
      labels: { ...metadata.labels, [NAMESPACE_NAME_LABEL]: metadata.name },
    },
  }),
});

/** A Namespace, as far as it is read. */
export type Namespace = ObjectOf<typeof NAMESPACE>;
