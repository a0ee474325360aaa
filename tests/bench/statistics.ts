/** Smallest, middle and largest of several measurements. */
export interface Spread {
  readonly min: number;
  readonly median: number;
  readonly max: number;
}

/** The spread of at least one value. Throws a RangeError for none. */
export function spreadOf(values: readonly number[]): Spread {
  if (values.length === 0) throw new RangeError("Cannot take the spread of no values");
  const sorted = values.toSorted((left, right) => left - right);
  const middle = sorted.length / 2;
  const median = sorted.length % 2 === 1
    ? sorted[Math.floor(middle)]!
    : (sorted[middle - 1]! + sorted[middle]!) / 2;
  return { min: sorted[0]!, median, max: sorted.at(-1)! };
}

/** Writes a spread as `median (min-max)`. */
export function showSpread({ min, median, max }: Spread, digits = 2): string {
  const text = (value: number) => value.toFixed(digits);
  return min === max ? text(median) : `${text(median)} (${text(min)}-${text(max)})`;
}

/** The value below which a share (0 to 1) of the values lies. */
export function percentile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((left, right) => left - right);
  const index = Math.min(sorted.length - 1, Math.floor(sorted.length * share));
  return sorted[index] ?? NaN;
}
