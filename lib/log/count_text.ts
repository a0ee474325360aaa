/** Counts as people read them. Pure. */

/** Returns e.g. `1 rule` or `2,000 map entries`; the noun is a singular. */
export function countText(count: number, noun: string): string {
  return `${groupedText(count)} ${count === 1 ? noun : pluralOf(noun)}`;
}

function pluralOf(noun: string): string {
  if (noun.endsWith("y")) return `${noun.slice(0, -1)}ies`;
  return noun.endsWith("s") ? `${noun}es` : `${noun}s`;
}

/** Returns e.g. `19,996`. */
export function groupedText(count: number): string {
  return String(count).replace(/\B(?=(\d{3})+$)/g, ",");
}
