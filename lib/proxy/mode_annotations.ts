/**
 * Annotations of a Service that concern a single mode. The plan does not read them; it passes them
 * on.
 *
 * @module
 */

import { MODE_ANNOTATIONS } from "../api/kinds/service.ts";

/** The annotations that are passed on, by full name. */
export type ModeAnnotations = Readonly<Partial<Record<ModeAnnotation, string>>>;

/** One of {@linkcode MODE_ANNOTATIONS}. */
export type ModeAnnotation = typeof MODE_ANNOTATIONS[number];

/** The annotations of a Service for modes; `undefined` if it has none, as almost always. */
export function modeAnnotationsOf(
  annotations: Readonly<Record<string, string>> | undefined,
): ModeAnnotations | undefined {
  if (annotations === undefined) return undefined;
  const names = MODE_ANNOTATIONS.filter((name) => annotations[name] !== undefined);
  if (names.length === 0) return undefined;
  return Object.fromEntries(names.map((name) => [name, annotations[name]]));
}
