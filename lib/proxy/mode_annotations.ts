/**
 * Annotations of a Service that concern a single mode. The plan does not read them; it passes them
 * on.
 *
 * @module
 */

/** The annotations that are passed on, by full name. */
export type ModeAnnotations = Readonly<Partial<Record<ModeAnnotation, string>>>;

/** For mode ipvs: the scheduler and its flags, by the names of kube-relay and of kube-router. */
export const MODE_ANNOTATIONS = [
  "kube-relay.io/ipvs-scheduler",
  "kube-relay.io/ipvs-scheduler-flags",
  "kube-router.io/service.scheduler",
  "kube-router.io/service.schedflags",
] as const;

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
