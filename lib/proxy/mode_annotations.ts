/**
 * Annotations by which a Service asks something of a single mode. They mean nothing to the plan, which
 * hands them on.
 *
 * @module
 */

/** What is handed on, by the whole name of the annotation. */
export type ModeAnnotations = Readonly<Partial<Record<ModeAnnotation, string>>>;

/** Of mode ipvs: the scheduler and its flags, by our names and by kube-router's. */
export const MODE_ANNOTATIONS = [
  "kube-relay.io/ipvs-scheduler",
  "kube-relay.io/ipvs-scheduler-flags",
  "kube-router.io/service.scheduler",
  "kube-router.io/service.schedflags",
] as const;

/** One of {@linkcode MODE_ANNOTATIONS}. */
export type ModeAnnotation = typeof MODE_ANNOTATIONS[number];

/** Those of a Service; `undefined` where there are none, as nearly everywhere. */
export function modeAnnotationsOf(
  annotations: Readonly<Record<string, string>> | undefined,
): ModeAnnotations | undefined {
  if (annotations === undefined) return undefined;
  const names = MODE_ANNOTATIONS.filter((name) => annotations[name] !== undefined);
  if (names.length === 0) return undefined;
  return Object.fromEntries(names.map((name) => [name, annotations[name]]));
}
