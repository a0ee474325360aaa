/** One difference. Indexes count from 0. */
interface ListDifference {
  readonly kind: "missing" | "extra" | "altered" | "reordered";
  /** Index in the wanted list; absent if extra. */
  readonly wanted?: number;
  /** Index in the found list; absent if missing. */
  readonly found?: number;
}

interface Pair {
  readonly wanted: number;
  readonly found: number;
}

/** With more pairs than this, items are compared by index only: such a long list is not read by hand. */
const MAX_PAIRS = 1_000_000;

/**
 * Compares two lists of texts. An item found at another place is reordered. Of the remaining items,
 * a missing and an extra one between the same neighbours make one altered item.
 */
export function compareLists(
  wanted: readonly string[],
  found: readonly string[],
): readonly ListDifference[] {
  const same = commonPairs(wanted, found);
  const left = { wanted: new Set(wanted.keys()), found: new Set(found.keys()) };
  for (const pair of same) {
    left.wanted.delete(pair.wanted);
    left.found.delete(pair.found);
  }
  const elsewhere = new Map<string, number[]>();
  // In reverse, so that pop() below returns the first one found.
  for (const index of [...left.found].reverse()) {
    elsewhere.getOrInsertComputed(found[index]!, () => []).push(index);
  }
  const differences: ListDifference[] = [];
  for (const index of left.wanted) {
    const place = elsewhere.get(wanted[index]!)?.pop();
    if (place === undefined) continue;
    differences.push({ kind: "reordered", wanted: index, found: place });
    left.wanted.delete(index);
    left.found.delete(place);
  }
  let from: Pair = { wanted: 0, found: 0 };
  for (const next of [...same, { wanted: wanted.length, found: found.length }]) {
    const missing = between(left.wanted, from.wanted, next.wanted);
    const extra = between(left.found, from.found, next.found);
    for (let nth = 0; nth < Math.max(missing.length, extra.length); nth++) {
      const [lacking, strange] = [missing[nth], extra[nth]];
      if (lacking === undefined) differences.push({ kind: "extra", found: strange! });
      else if (strange === undefined) differences.push({ kind: "missing", wanted: lacking });
      else differences.push({ kind: "altered", wanted: lacking, found: strange });
    }
    from = { wanted: next.wanted + 1, found: next.found + 1 };
  }
  const placeOf = ({ wanted, found = 0 }: ListDifference) => wanted ?? found;
  return differences.sort((one, other) => placeOf(one) - placeOf(other));
}

function between(indexes: ReadonlySet<number>, from: number, to: number): readonly number[] {
  const found: number[] = [];
  for (let index = from; index < to; index++) if (indexes.has(index)) found.push(index);
  return found;
}

/** The longest common subsequence, as pairs of indexes. */
function commonPairs(wanted: readonly string[], found: readonly string[]): readonly Pair[] {
  let start = 0;
  while (start < wanted.length && start < found.length && wanted[start] === found[start]) start++;
  let [rows, columns] = [wanted.length - start, found.length - start];
  while (rows > 0 && columns > 0 && wanted[start + rows - 1] === found[start + columns - 1]) {
    rows--;
    columns--;
  }
  const pairs: Pair[] = [];
  const add = (row: number, column: number) =>
    pairs.push({ wanted: start + row, found: start + column });
  const isSame = (row: number, column: number) => wanted[start + row] === found[start + column];
  for (let index = -start; index < 0; index++) add(index, index);
  if (rows * columns > MAX_PAIRS) {
    for (let index = 0; index < Math.min(rows, columns); index++) {
      if (isSame(index, index)) add(index, index);
    }
  } else if (rows * columns > 0) {
    // Length of the longest common subsequence of both tails, for each pair of indexes.
    const width = columns + 1;
    const lengths = new Uint32Array((rows + 1) * width);
    const at = (row: number, column: number) => lengths[row * width + column]!;
    for (let row = rows - 1; row >= 0; row--) {
      for (let column = columns - 1; column >= 0; column--) {
        lengths[row * width + column] = isSame(row, column)
          ? at(row + 1, column + 1) + 1
          : Math.max(at(row + 1, column), at(row, column + 1));
      }
    }
    for (let [row, column] = [0, 0]; row < rows && column < columns;) {
      if (isSame(row, column)) add(row++, column++);
      else if (at(row + 1, column) >= at(row, column + 1)) row++;
      else column++;
    }
  }
  for (; start + rows < wanted.length; rows++, columns++) add(rows, columns);
  return pairs;
}
