import type { TraceEnding, TraceStep } from "../../../lib/explain/packet_trace.ts";

/**
 * Returns the outcome of a packet by its last step. The kernel reports `reject` as a drop: only the
 * rule distinguishes them.
 */
export function endingOf(steps: readonly TraceStep[]): TraceEnding {
  const last = steps.at(-1);
  if (last === undefined || !/^(drop|reject)\b/.test(last.verdict)) return "went on";
  return /\breject\b|-j REJECT\b/.test(`${last.verdict} ${last.rule ?? ""}`)
    ? "rejected"
    : "dropped";
}
