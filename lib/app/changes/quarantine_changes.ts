/**
 * Who went into quarantine and who came out. Pure.
 *
 * @module
 */
import type { Quarantined } from "../../proxy/data_plane.ts";
import type { QuarantineEntry } from "./change_entry.ts";
import { shortened } from "./change_parts.ts";

/** Of one sync; when a whole range of addresses is lost, the first ones tell why. */
const MOST_TOLD = 16;

/** Longest reason that is kept: it may hold what a tool printed. */
const LONGEST_REASON = 400;

/** What is different between two lists of all that is in quarantine. Those that stay are not told again. */
export function quarantineChanges(
  before: readonly Quarantined[],
  after: readonly Quarantined[],
): readonly Omit<QuarantineEntry, "kind" | "at" | "family" | "sequence">[] {
  if (before.length === 0 && after.length === 0) return [];
  const [old, now] = [new Set(before.map(placeOf)), new Set(after.map(placeOf))];
  const into = after.filter((each) => !old.has(placeOf(each)));
  const out = before.filter((each) => !now.has(placeOf(each)));
  return [
    ...into.slice(0, MOST_TOLD).map((each) => told(each, "in")),
    ...out.slice(0, MOST_TOLD).map((each) => told(each, "out")),
  ];
}

function placeOf({ key, address }: Quarantined): string {
  return `${key} ${address ?? ""}`;
}

function told({ key, address, reason }: Quarantined, direction: "in" | "out") {
  return {
    direction,
    servicePort: shortened(key),
    ...(address !== undefined && { address }),
    reason: reason.slice(0, LONGEST_REASON),
  };
}
