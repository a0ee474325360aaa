/**
 * Annotations of a Service for mode ipvs. The plan does not read them, since their meaning depends on the
 * scheduler of the node; it passes them on.
 *
 * @module
 */

import { IPVS_ANNOTATIONS } from "../api/service_annotations.ts";

/** The annotations that are passed on, by full name. */
export type ModeAnnotations = Readonly<Partial<Record<ModeAnnotation, string>>>;

/** One of {@linkcode IPVS_ANNOTATIONS}. */
export type ModeAnnotation = typeof IPVS_ANNOTATIONS[number];

/** The annotations of a Service for modes; `undefined` if it has none, as almost always. */
export function modeAnnotationsOf(
  annotations: Readonly<Record<string, string>> | undefined,
): ModeAnnotations | undefined {
  if (annotations === undefined) return undefined;
  const names = IPVS_ANNOTATIONS.filter((name) => annotations[name] !== undefined);
  if (names.length === 0) return undefined;
  return Object.fromEntries(names.map((name) => [name, annotations[name]]));
}
