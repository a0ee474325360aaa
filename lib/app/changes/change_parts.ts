/**
 * The parts that descriptions of changes are made of, and their bounds: an object may hold any text.
 *
 * @module
 */

/** Words that are kept of one object. */
const MOST_WORDS = 8;
/** Items of one kind that are named. */
const MOST_ITEMS = 3;
/** Longest word. */
const LONGEST = 120;

/** The value before and after. */
type Pair<Value> = readonly [before: Value, after: Value];

/** `type ClusterIP -> NodePort`; nothing where both are the same. */
export function changeOf(label: string, [before, after]: Pair<unknown>): readonly string[] {
  if (before === after) return [];
  return [shortened(`${label} ${before ?? "none"} -> ${after ?? "none"}`)];
}

/** `external IP 203.0.113.1 new`, and `gone` for what is no longer in the list; many are counted. */
export function itemChanges(
  label: string,
  [before, after]: Pair<readonly string[]>,
): readonly string[] {
  const [old, now] = [new Set(before), new Set(after)];
  return [
    ...named(label, "gone", [...old].filter((item) => !now.has(item))),
    ...named(label, "new", [...now].filter((item) => !old.has(item))),
  ];
}

/** A description that is short enough to be kept. */
export function limited(words: readonly string[]): readonly string[] {
  const shown = words.slice(0, MOST_WORDS).map(shortened);
  const more = words.length - shown.length;
  return more > 0 ? [...shown, `${more} more`] : shown;
}

/** A text of an object that is short enough to be kept. */
export function shortened(text: string): string {
  return text.length <= LONGEST ? text : `${text.slice(0, LONGEST - 1)}\u2026`;
}

function named(label: string, what: string, items: readonly string[]): readonly string[] {
  const shown = items.slice(0, MOST_ITEMS).map((item) => `${label} ${item} ${what}`);
  const more = items.length - shown.length;
  return more > 0 ? [...shown, `${more} more ${what}`] : shown;
}
