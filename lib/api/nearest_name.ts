import { closest, distance } from "fastest-levenshtein";

/** The distance costs the product of the lengths, and names in a file may be long. */
const LONGEST_NAME = 64;

/**
 * Returns the known name closest to an unknown one, or `undefined` if none is close. Ignores case.
 * `mostEdits`: the number of letters that may differ. @default a third of them
 */
export function nearestName(
  name: string,
  known: readonly string[],
  mostEdits?: number,
): string | undefined {
  if (known.length === 0 || name === "" || name.length > LONGEST_NAME) return undefined;
  const lower = name.toLowerCase();
  const candidate = closest(lower, known.map((each) => each.toLowerCase()));
  const found = known.find((each) => each.toLowerCase() === candidate);
  if (found === undefined) return undefined;
  const third = Math.floor(Math.max(name.length, found.length) / 3);
  const allowed = mostEdits ?? Math.max(1, third);
  // Swapped letters count double in a distance: "prot".
  const isNear = distance(lower, candidate) <= allowed || lettersOf(lower) === lettersOf(candidate);
  return isNear ? found : undefined;
}

function lettersOf(name: string): string {
  return [...name].sort().join("");
}

/** Returns `; did you mean 'x'?`, or nothing. */
export function didYouMean(name: string, known: readonly string[], prefix = ""): string {
  const nearest = nearestName(name, known);
  return nearest === undefined ? "" : `; did you mean '${prefix}${nearest}'?`;
}
