/**
 * Numbers as a row of bars, one letter each.
 *
 * @module
 */

const BARS = ["\u2581", "\u2582", "\u2583", "\u2584", "\u2585", "\u2586", "\u2587", "\u2588"];

/** The highest is a whole bar; `undefined` is something that has no height, such as a failure. */
export function sparkline(values: readonly (number | undefined)[]): string {
  const highest = values.reduce<number>((most, value) => Math.max(most, value ?? 0), 0);
  return values.map((value) => {
    if (value === undefined) return "x";
    const share = highest === 0 ? 0 : value / highest;
    return BARS[Math.min(BARS.length - 1, Math.floor(share * BARS.length))];
  }).join("");
}
