/**
 * What became of a packet, by the last thing that was done about it. Pure.
 *
 * @module
 */
import type { TraceEnding, TraceStep } from "../../../lib/explain/packet_trace.ts";

/** The kernel tells of a `reject` that the packet was dropped: the rule says which of both it was. */
export function endingOf(steps: readonly TraceStep[]): TraceEnding {
  const last = steps.at(-1);
  if (last === undefined || !/^(drop|reject)\b/.test(last.verdict)) return "went on";
  return /\breject\b|-j REJECT\b/.test(`${last.verdict} ${last.rule ?? ""}`)
    ? "rejected"
    : "dropped";
}
