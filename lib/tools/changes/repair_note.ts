/**
 * The message of `kube-relay diff --repair` to the running process, and its entry in the change log. Any
 * program that may open the control socket can send one, so every field is checked.
 */
import * as v from "valibot";
import { CONTROLLER_NAMES } from "../../engine/loop_id.ts";
import { IP_FAMILIES } from "../../net/ip_address.ts";
import type { DataPlaneRepair } from "../../proxy/data_plane_difference.ts";
import { MAX_REASON } from "./change_entry.ts";

/** Most kinds of objects in one repair; no mode has as many. */
const MOST_KINDS = 16;
/** A day, in milliseconds. */
const LONGEST_MS = 86_400_000;
const count = v.pipe(v.number(), v.integer(), v.minValue(0), v.maxValue(1_000_000_000));

const SCHEMA = v.strictObject({
  controller: v.exactOptional(v.picklist(CONTROLLER_NAMES)),
  family: v.picklist(IP_FAMILIES),
  uid: v.exactOptional(v.pipe(v.number(), v.integer(), v.minValue(0), v.maxValue(2 ** 32 - 1))),
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
  error: v.exactOptional(v.pipe(v.string(), v.maxLength(MAX_REASON))),
});

/** One repair of one family of a controller, as it reported itself. */
export type RepairNote = v.InferOutput<typeof SCHEMA>;

/** Returns the message if it is valid, otherwise the path of the first wrong field. */
export function parseRepairNote(
  value: unknown,
): { readonly note: RepairNote } | { readonly problem: string } {
  const { success, output, issues } = v.safeParse(SCHEMA, value, { abortEarly: true });
  if (!success) {
    return { problem: v.getDotPath(issues[0]) ?? "message: expected an object" };
  }
  return { note: output };
}

/** Counts a repair by kind of object. */
export function repairedObjects(
  { found, left }: Pick<DataPlaneRepair, "found" | "left">,
): RepairNote["objects"] {
  const kinds = Map.groupBy(found, ({ object }) => object);
  const remaining = Map.groupBy(left, ({ object }) => object);
  return [...kinds].slice(0, MOST_KINDS).map(([object, { length }]) => {
    // The second comparison may find more of a kind than the first one.
    const rest = Math.min(length, remaining.get(object)?.length ?? 0);
    return { object, found: length, repaired: length - rest };
  });
}
