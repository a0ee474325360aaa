/**
 * The objects of builders in the form in which API servers and manifests have them.
 *
 * @module
 */
import type { ObjectMeta } from "../../../lib/api/kind.ts";
import { apiVersionsOf } from "../../../lib/api/kind.ts";
import { SERVICE_KINDS } from "../../../lib/app/service/service_subscriptions.ts";
import type { RawObject } from "../../conformance/server.ts";

/** Gives objects their kind. */
export function rawObjects(
  kind: string,
  ...objects: readonly { readonly metadata: ObjectMeta }[]
): RawObject[] {
  const spec = SERVICE_KINDS.find((spec) => spec.kind === kind)!;
  const head = { apiVersion: apiVersionsOf(spec)[0]!, kind };
  // Only what JSON has goes over the wire.
  return JSON.parse(JSON.stringify(objects.map((object) => ({ ...head, ...object }))));
}

/** A manifest of objects. JSON is YAML. */
export function manifestText(items: readonly RawObject[]): string {
  return JSON.stringify({ apiVersion: "v1", kind: "List", items }, undefined, 1);
}
