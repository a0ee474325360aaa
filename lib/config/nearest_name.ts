/**
 * The name that was probably meant.
 *
 * @module
 */
import { closest, distance } from "fastest-levenshtein";

/**
 * The known name nearest to a wrong one, or `undefined` when none is near: more than a third of the
 * letters differ. Case does not count.
 */
export function nearestName(name: string, known: readonly string[]): string | undefined {
  if (known.length === 0 || name === "") return undefined;
  const lower = name.toLowerCase();
  const candidate = closest(lower, known.map((each) => each.toLowerCase()));
  const found = known.find((each) => each.toLowerCase() === candidate);
  if (found === undefined) return undefined;
  const allowed = Math.max(1, Math.floor(Math.max(name.length, found.length) / 3));
  return distance(lower, candidate) <= allowed ? found : undefined;
}

/** `; did you mean 'x'?`, or nothing. */
export function didYouMean(name: string, known: readonly string[], prefix = ""): string {
  const nearest = nearestName(name, known);
  return nearest === undefined ? "" : `; did you mean '${prefix}${nearest}'?`;
}
