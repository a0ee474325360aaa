/**
 * Work in short steps: a generator yields where others may have their turn.
 *
 * @module
 */

/** Items that are looked at between two pauses: well under a millisecond. */
export const ITEMS_PER_STEP = 512;

/** Does all steps of some work without a pause, and returns its result. */
export function atOnce<T>(work: Generator<void, T>): T {
  for (;;) {
    const step = work.next();
    if (step.done) return step.value;
  }
}

/** Sorts in short steps: runs that are sorted at once, merged two by two. */
export function* sortInSteps<T>(
  items: readonly T[],
  compare: (left: T, right: T) => number,
): Generator<void, readonly T[], void> {
  let runs: T[][] = [];
  for (let from = 0; from < items.length; from += ITEMS_PER_STEP) {
    runs.push(items.slice(from, from + ITEMS_PER_STEP).sort(compare));
    yield;
  }
  while (runs.length > 1) {
    const merged: T[][] = [];
    for (let at = 0; at < runs.length; at += 2) {
      merged.push(yield* mergeInSteps(runs[at]!, runs[at + 1] ?? [], compare));
    }
    runs = merged;
  }
  return runs[0] ?? [];
}

/** Merges two sorted lists. */
export function* mergeInSteps<T>(
  left: readonly T[],
  right: readonly T[],
  compare: (left: T, right: T) => number,
): Generator<void, T[], void> {
  const merged: T[] = [];
  let [one, other] = [0, 0];
  while (one < left.length || other < right.length) {
    const isLeft = other === right.length ||
      (one < left.length && compare(left[one]!, right[other]!) <= 0);
    merged.push(isLeft ? left[one++]! : right[other++]!);
    if (merged.length % ITEMS_PER_STEP === 0) yield;
  }
  return merged;
}
