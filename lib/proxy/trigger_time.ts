/**
 * The time of the pod or Service change that caused an update of an EndpointSlice.
 *
 * @module
 */
import type { ObjectMeta } from "../api/objects.ts";
import type { ProblemCollector } from "./problem_collector.ts";

const TRIGGER_TIME_ANNOTATION = "endpoints.kubernetes.io/last-change-trigger-time";
/** RFC 3339; `Date.parse()` alone accepts many other formats. */
const RFC_3339 = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d)$/;

/**
 * Reads the annotation, in milliseconds since 1970: the start of the network programming latency.
 * Returns `undefined` if it is absent, or invalid, which is reported.
 */
export function triggerTimeOf(
  { annotations }: ObjectMeta,
  problems: ProblemCollector,
): number | undefined {
  const text = annotations?.[TRIGGER_TIME_ANNOTATION];
  if (text === undefined) return undefined;
  const [, seconds, fraction = "", offset] = RFC_3339.exec(text) ?? [];
  const time = Date.parse(`${seconds}${offset}`) + Number(`0${fraction}`) * 1000;
  if (!Number.isNaN(time)) return time;
  problems.report(
    `metadata.annotations['${TRIGGER_TIME_ANNOTATION}']`,
    text,
    "The latency of this change is not measured: the time has to be written as in RFC 3339",
  );
  return undefined;
}
