/**
 * The message of `kube-relay diff --repair` to the running process, and its entry in the change log. Any
 * program that may open the control socket can send one, so every field is checked.
 */
import * as v from "valibot";
import { CONTROLLER_NAMES } from "../../engine/loop_id.ts";
import { IP_FAMILIES } from "../../net/ip_address.ts";
import type { DataPlaneRepair } from "../../proxy/data_plane_difference.ts";
import type { ChangeEntry, RepairedObjects, RepairEntry } from "./change_entry.ts";

/** Most kinds of objects in one repair; no mode has as many. */
const MOST_KINDS = 16;
/** A day, in milliseconds. */
const LONGEST_MS = 86_400_000;
const LONGEST_REASON = 400;
/** Longest gap between repairs in one entry. Otherwise a loop could push out all other entries. */
const GAP_MS = 60_000;
/** Most users with their own entry among successive repairs. */
const MOST_USERS = 8;

const count = v.pipe(v.number(), v.integer(), v.minValue(0), v.maxValue(1_000_000_000));

const SCHEMA = v.strictObject({
  controller: v.optional(v.picklist(CONTROLLER_NAMES)),
  family: v.picklist(IP_FAMILIES),
  uid: v.optional(v.pipe(v.number(), v.integer(), v.minValue(0), v.maxValue(2 ** 32 - 1))),
  pid: v.pipe(v.number(), v.integer(), v.minValue(1), v.maxValue(2 ** 31 - 1)),
  objects: v.pipe(
    v.array(v.pipe(
      v.strictObject({
        object: v.pipe(v.string(), v.regex(/^[a-z][a-z ]{0,39}$/)),
        found: count,
        repaired: count,
      }),
      v.check(({ found, repaired }) => repaired <= found, "more repaired than found"),
    )),
    v.maxLength(MOST_KINDS),
    v.check((list) => new Set(list.map(({ object }) => object)).size === list.length, "twice"),
  ),
  tookMs: v.pipe(v.number(), v.minValue(0), v.maxValue(LONGEST_MS)),
  error: v.optional(v.pipe(v.string(), v.maxLength(LONGEST_REASON))),
});

type RepairEntryParts = Omit<RepairEntry, "sequence">;

/** One repair of one family of a controller. */
export type RepairNote = Omit<RepairEntry, "kind" | "at" | "sequence" | "times">;

/** Returns the message if it is valid, otherwise the path of the first wrong field. */
export function parseRepairNote(
  value: unknown,
): { readonly note: RepairNote } | { readonly problem: string } {
  const { success, output, issues } = v.safeParse(SCHEMA, value, { abortEarly: true });
  if (!success) {
    return { problem: v.getDotPath(issues[0]) ?? "message: expected an object" };
  }
  const { controller, uid, error, tookMs, ...rest } = output;
  return {
    note: {
      ...rest,
      tookMs: Math.round(tookMs * 10) / 10,
      ...(controller && { controller }),
      ...(uid !== undefined && { uid }),
      ...(error !== undefined && { error }),
    },
  };
}

/** Counts a repair by kind of object. */
export function repairedObjects(
  { found, left }: Pick<DataPlaneRepair, "found" | "left">,
): readonly RepairedObjects[] {
  const kinds = Map.groupBy(found, ({ object }) => object);
  const remaining = Map.groupBy(left, ({ object }) => object);
  return [...kinds].slice(0, MOST_KINDS).map(([object, { length }]) => {
    // The second comparison may find more of a kind than the first one.
    const rest = Math.min(length, remaining.get(object)?.length ?? 0);
    return { object, found: length, repaired: length - rest };
  });
}

/** Shortens the error of a failed repair to the longest one allowed. */
export function shortReason(text: string): string {
  return text.slice(0, LONGEST_REASON);
}

/**
 * Returns the entry that a repair continues: the one by the same user or, since user numbers can be made
 * up, the newest one after many users. `newest`: the log, newest entry first.
 */
export function entryToContinue(
  newest: readonly ChangeEntry[],
  { controller, family, uid, at }: RepairEntryParts,
): RepairEntry | undefined {
  const end = newest.findIndex(({ kind }) => kind !== "repair");
  const repairs = newest.slice(0, end < 0 ? newest.length : end).flatMap((entry) => {
    const isRecent = Date.parse(at) - Date.parse(entry.at) < GAP_MS;
    if (entry.kind !== "repair" || !isRecent) return [];
    return entry.family === family && entry.controller === controller ? [entry] : [];
  });
  return repairs.find((entry) => entry.uid === uid) ??
    (repairs.length >= MOST_USERS ? repairs[0] : undefined);
}

/** Merges two repairs. */
export function mergedRepairs(earlier: RepairEntry, later: RepairEntryParts): RepairEntryParts {
  const objects = new Map(earlier.objects.map((each) => [each.object, each]));
  for (const { object, found, repaired } of later.objects) {
    const before = objects.get(object) ?? { found: 0, repaired: 0 };
    if (!objects.has(object) && objects.size >= MOST_KINDS) continue;
    const sum = { found: before.found + found, repaired: before.repaired + repaired };
    objects.set(object, { object, ...sum });
  }
  return {
    ...later,
    objects: [...objects.values()],
    tookMs: earlier.tookMs + later.tookMs,
    times: earlier.times + 1,
  };
}
