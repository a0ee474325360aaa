/** Most words of one object. */
const MOST_WORDS = 8;
/** Most items of one kind that are named. */
const MOST_ITEMS = 3;
/** Longest text: an object may hold any. */
const LONGEST = 120;

type Pair<Value> = readonly [before: Value, after: Value];

/** Returns e.g. `type ClusterIP -> NodePort`; nothing if both are the same. */
export function changeOf(label: string, [before, after]: Pair<unknown>): readonly string[] {
  if (before === after) return [];
  return [shortened(`${label} ${before ?? "none"} -> ${after ?? "none"}`)];
}

/** Returns e.g. `external IP 203.0.113.1 new` and `… gone`; many items are counted. */
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

/** Returns at most 8 short words. */
export function limited(words: readonly string[]): readonly string[] {
  const shown = words.slice(0, MOST_WORDS).map(shortened);
  const more = words.length - shown.length;
  return more > 0 ? [...shown, `${more} more`] : shown;
}

/** Returns at most 120 characters of a text. */
export function shortened(text: string): string {
  return text.length <= LONGEST ? text : `${text.slice(0, LONGEST - 1)}\u2026`;
}

function named(label: string, what: string, items: readonly string[]): readonly string[] {
  const shown = items.slice(0, MOST_ITEMS).map((item) => `${label} ${item} ${what}`);
  const more = items.length - shown.length;
  return more > 0 ? [...shown, `${more} more ${what}`] : shown;
}
