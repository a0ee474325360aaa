/**
 * What stays in force of a manifest file that has errors now.
 *
 * @module
 */
import { deepEqual } from "../../proxy/deep_equal.ts";
import type { ManifestFileContent, PlacedObject } from "./manifest_file.ts";
import type { ManifestObjectId } from "./manifest_object.ts";
import type { FileObjects } from "./manifest_store.ts";
import type { TimeSlice } from "../../os/time_slice.ts";

/**
 * Brings the last good content of a file up to date.
 *
 * - A file with syntax errors keeps all that it had: nobody can tell what is missing from it. One that
 *   had nothing gives what can be read.
 * - An object with errors keeps its last good version; the others are updated.
 * - While an object has errors and no name, whatever the file no longer names stays: it may be that one.
 *
 * Objects that did not change keep their identity.
 */
export async function keepLastGood(
  previous: FileObjects,
  content: ManifestFileContent,
  slice: TimeSlice,
): Promise<FileObjects> {
  if (content.isBroken && previous.size > 0) return previous;
  const objects = new Map<ManifestObjectId, PlacedObject>();
  for (const [id, placed] of content.objects) {
    objects.set(id, reuse(previous.get(id), placed));
    const pause = slice.pause();
    if (pause) await pause;
  }
  const kept = content.isIncomplete ? previous.keys() : content.refused;
  for (const id of kept) {
    const last = previous.get(id);
    if (last && !objects.has(id)) objects.set(id, last);
  }
  return objects;
}

function reuse(previous: PlacedObject | undefined, current: PlacedObject): PlacedObject {
  if (!previous || !deepEqual(previous.entry.object, current.entry.object)) return current;
  return previous.line === current.line ? previous : { entry: previous.entry, line: current.line };
}
