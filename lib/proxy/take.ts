/**
 * Takes a piece out of a map.
 *
 * @module
 */

/** Gives the oldest entries of a map, at most so many, and deletes each as it is given. */
export function* take<K, V>(map: Map<K, V>, limit: number): Generator<[K, V], void, void> {
  let taken = 0;
  for (const entry of map) {
    if (taken++ >= limit) return;
    map.delete(entry[0]);
    yield entry;
  }
}
