/**
 * Blocks without their exceptions, as blocks again.
 *
 * @module
 */
import { blocksOfRange, rangeOf } from "./address_range.ts";
import { type Cidr, cidrFamilyOf } from "./cidr.ts";
import type { IpFamily } from "./ip_address.ts";

/** A block and what is not in it. */
export interface BlockWithExceptions {
  readonly cidr: Cidr;
  readonly except: readonly Cidr[];
}

/** Addresses as numbers, both ends included. */
interface Range {
  readonly first: bigint;
  readonly last: bigint;
}

/**
 * The addresses that are in any of the blocks and in no exception of the same block, as the fewest
 * blocks, which are disjoint and sorted. All have to be of one family. Returns `undefined` if there
 * would be more than `most`. Costs n log n of what is given, plus the result.
 */
export function blocksWithoutExceptions(
  blocks: readonly BlockWithExceptions[],
  { family, most }: { readonly family: IpFamily; readonly most: number },
): readonly Cidr[] | undefined {
  const found: Cidr[] = [];
  for (const range of merged(blocks.flatMap(remainderOf))) {
    for (const block of blocksOfRange({ family, ...range })) {
      if (found.length === most) return undefined;
      found.push(block);
    }
  }
  return found;
}

function remainderOf({ cidr, except }: BlockWithExceptions): readonly Range[] {
  const whole = rangeOf(cidr);
  const family = cidrFamilyOf(cidr);
  const found: Range[] = [];
  let first = whole.first;
  const gaps = except.filter((gap) => cidrFamilyOf(gap) === family).map(rangeOf);
  for (const gap of merged(gaps)) {
    if (gap.last < whole.first || gap.first > whole.last) continue;
    if (gap.first > first) found.push({ first, last: gap.first - 1n });
    first = gap.last + 1n;
  }
  if (first <= whole.last) found.push({ first, last: whole.last });
  return found;
}

/** Sorted and disjoint; neighbours become one. */
function merged(ranges: readonly Range[]): readonly Range[] {
  const found: Range[] = [];
  const sorted = ranges.toSorted((left, right) =>
    left.first < right.first ? -1 : left.first > right.first ? 1 : 0
  );
  for (const range of sorted) {
    const before = found.at(-1);
    if (before === undefined || range.first > before.last + 1n) found.push(range);
    else if (range.last > before.last) found[found.length - 1] = { ...before, last: range.last };
  }
  return found;
}
