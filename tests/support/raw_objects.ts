/**
 * The objects of builders in the form in which API servers and manifests have them.
 *
 * @module
 */
import type { ObjectMeta } from "../../lib/api/objects.ts";
import type { RawObject } from "../conformance/server.ts";

/** API versions of the kinds that are read. */
const API_VERSIONS = {
  Node: "v1",
  Service: "v1",
  Endpoints: "v1",
  EndpointSlice: "discovery.k8s.io/v1",
  ServiceCIDR: "networking.k8s.io/v1",
} as const;

/** Gives objects their kind. */
export function rawObjects(
  kind: keyof typeof API_VERSIONS,
  ...objects: readonly { readonly metadata: ObjectMeta }[]
): RawObject[] {
  const head = { apiVersion: API_VERSIONS[kind], kind };
  // Only what JSON has goes over the wire.
  return JSON.parse(JSON.stringify(objects.map((object) => ({ ...head, ...object }))));
}

/** A manifest of objects. JSON is YAML. */
export function manifestText(items: readonly RawObject[]): string {
  return JSON.stringify({ apiVersion: "v1", kind: "List", items }, undefined, 1);
}
