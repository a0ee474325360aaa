/** One difference. Indexes count from 0. */
interface ListDifference {
  readonly kind: "missing" | "extra" | "altered" | "reordered";
  /** Index in the wanted list; absent if extra. */
  readonly wanted?: number;
  /** Index in the found list; absent if missing. */
  readonly found?: number;
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
  const same = commonItems(wanted, found);
  const differences: ListDifference[] = [];
  const left = reorderedItems({ wanted, found }, same, differences);
  const gaps = [...same, { wanted: wanted.length, found: found.length }];
  let [missing, extra] = [0, 0];
  for (const gap of gaps) {
    const isLacking = () => left.wanted[missing]! < gap.wanted;
    const isStrange = () => left.found[extra]! < gap.found;
    while (isLacking() || isStrange()) {
      const lacking = isLacking() ? left.wanted[missing++] : undefined;
      const strange = isStrange() ? left.found[extra++] : undefined;
      differences.push(pairOf(lacking, strange));
    }
  }
  const placeOf = ({ wanted, found = 0 }: ListDifference) => wanted ?? found;
  return differences.sort((one, other) => placeOf(one) - placeOf(other));
}

interface Pair {
  readonly wanted: number;
  readonly found: number;
}

function pairOf(wanted: number | undefined, found: number | undefined): ListDifference {
  if (wanted === undefined) return { kind: "extra", ...(found !== undefined && { found }) };
  if (found === undefined) return { kind: "missing", wanted };
  return { kind: "altered", wanted, found };
}

/** Records items that both lists have in different order; returns the items of only one list. */
function reorderedItems(
  { wanted, found }: { readonly wanted: readonly string[]; readonly found: readonly string[] },
  same: readonly Pair[],
  differences: ListDifference[],
): { readonly wanted: readonly number[]; readonly found: readonly number[] } {
  const wantedInPlace = new Set(same.map((pair) => pair.wanted));
  const foundInPlace = new Set(same.map((pair) => pair.found));
  const strays = new Map<string, number[]>();
  const moved = new Set<number>();
  // In reverse, so that pop() below returns the first one found.
  for (let index = found.length - 1; index >= 0; index--) {
    const text = found[index]!;
    if (foundInPlace.has(index)) continue;
    const others = strays.get(text);
    if (others) others.push(index);
    else strays.set(text, [index]);
  }
  const lacking: number[] = [];
  for (const [index, text] of wanted.entries()) {
    if (wantedInPlace.has(index)) continue;
    const place = strays.get(text)?.pop();
    if (place === undefined) {
      lacking.push(index);
      continue;
    }
    moved.add(place);
    differences.push({ kind: "reordered", wanted: index, found: place });
  }
  const strange = found.keys().filter((index) => !foundInPlace.has(index) && !moved.has(index));
  return { wanted: lacking, found: [...strange] };
}

/** The longest common subsequence, as pairs of indexes. */
function commonItems(wanted: readonly string[], found: readonly string[]): readonly Pair[] {
  let start = 0;
  while (start < wanted.length && start < found.length && wanted[start] === found[start]) start++;
  let end = 0;
  while (
    end < wanted.length - start && end < found.length - start &&
    wanted.at(-1 - end) === found.at(-1 - end)
  ) end++;
  const before = Array.from({ length: start }, (_, index) => ({ wanted: index, found: index }));
  const after = Array.from({ length: end }, (_, index) => ({
    wanted: wanted.length - end + index,
    found: found.length - end + index,
  }));
  const between = middlePairs(
    wanted.slice(start, wanted.length - end),
    found.slice(start, found.length - end),
  );
  return [
    ...before,
    ...between.map((pair) => ({ wanted: pair.wanted + start, found: pair.found + start })),
    ...after,
  ];
}

function middlePairs(wanted: readonly string[], found: readonly string[]): readonly Pair[] {
  const width = found.length + 1;
  if (wanted.length === 0 || found.length === 0) return [];
  if (wanted.length * found.length > MAX_PAIRS) {
    return wanted.flatMap((text, index) =>
      text === found[index] ? [{ wanted: index, found: index }] : []
    );
  }
  // Length of the longest common subsequence of both tails, for each pair of indexes.
  const lengths = new Uint32Array((wanted.length + 1) * width);
  const at = (row: number, column: number) => lengths[row * width + column] ?? 0;
  for (let row = wanted.length - 1; row >= 0; row--) {
    for (let column = found.length - 1; column >= 0; column--) {
      lengths[row * width + column] = wanted[row] === found[column]
        ? at(row + 1, column + 1) + 1
        : Math.max(at(row + 1, column), at(row, column + 1));
    }
  }
  const pairs: Pair[] = [];
  let row = 0;
  let column = 0;
  while (row < wanted.length && column < found.length) {
    if (wanted[row] === found[column]) pairs.push({ wanted: row++, found: column++ });
    else if (at(row + 1, column) >= at(row, column + 1)) row++;
    else column++;
  }
  return pairs;
}
