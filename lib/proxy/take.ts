/**
 * Removes the oldest entries of a map.
 *
 * @module
 */

/** Yields the oldest entries of a map, at most `limit`, and deletes each before it is yielded. */
export function* take<K, V>(map: Map<K, V>, limit: number): Generator<[K, V], void, void> {
  let taken = 0;
  for (const entry of map) {
    if (taken++ >= limit) return;
    map.delete(entry[0]);
    yield entry;
  }
}
