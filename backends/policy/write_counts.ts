/** Counts of one write, by name. */
export type WriteCounts = Record<string, number>;

/** Adds to the counts; zeros are left out. */
export function addCounts(counts: WriteCounts, added: Readonly<WriteCounts>): void {
  for (const [name, value] of Object.entries(added)) {
    if (value !== 0) counts[name] = (counts[name] ?? 0) + value;
  }
}
