/**
 * Blocks without their exceptions. Their size follows what was written: an exception of one address in
 * `::/0` is one more block inside another, or one more range, and not the 128 blocks around it.
 *
 * @module
 */
import { type AddressRange, blocksOfRange, rangeOf } from "./address_range.ts";
import { type Cidr, cidrFamilyOf, networkOf } from "./cidr.ts";
import { CidrIndex } from "./cidr_cover.ts";
import { sortInSteps } from "./steps.ts";
import { addressAt, type IpAddress } from "./ip_address.ts";

/** A block and the blocks that are taken out of it. */
export interface BlockWithExceptions {
  readonly cidr: Cidr;
  readonly except: readonly Cidr[];
}

/**
 * Blocks inside each other. The smallest block that contains an address decides whether the address
 * belongs to the set (`true`) or not; an address in none of them does not. Sorted, and each block
 * differs from the one around it.
 */
export type NestedBlocks = ReadonlyMap<Cidr, boolean>;

/** Blocks between two pauses: well under a millisecond. */
const BLOCKS_PER_STEP = 512;

/** Addresses as numbers, both ends included. */
type NumericRange = Pick<AddressRange, "first" | "last">;

/** A block of the input, and the entries that it begins or is taken out of, by their place. */
interface PlacedBlock extends NumericRange {
  readonly cidr: Cidr;
  readonly includedIn: number[];
  readonly excludedFrom: number[];
}

/**
 * Returns the addresses that are in any of the blocks and in no exception of the same block. All blocks
 * have to be of one family. The result has at most as many blocks as the input; the cost is n log n, in
 * short steps.
 */
export function* nestBlocks(
  blocks: readonly BlockWithExceptions[],
): Generator<void, NestedBlocks, void> {
  const found = new Map<Cidr, boolean>();
  // Of each entry, whether its block is open, less its open exceptions: 1 = it has the addresses here.
  const scores = new Int32Array(blocks.length);
  let holders = 0;
  const add = (entry: number, by: number) => {
    if (scores[entry] === 1) holders--;
    scores[entry]! += by;
    if (scores[entry] === 1) holders++;
  };
  const pass = ({ includedIn, excludedFrom }: PlacedBlock, by: 1 | -1) => {
    for (const entry of excludedFrom) add(entry, -by);
    for (const entry of includedIn) add(entry, by);
  };
  const around: { readonly block: PlacedBlock; readonly isIn: boolean }[] = [];
  const sorted = yield* sortInSteps(yield* placeBlocks(blocks), comparePlaces);
  for (const [index, block] of sorted.entries()) {
    if (index % BLOCKS_PER_STEP === 0) yield;
    while (around.length > 0 && around.at(-1)!.block.last < block.first) {
      pass(around.pop()!.block, -1);
    }
    pass(block, 1);
    const isIn = holders > 0;
    if (isIn !== (around.at(-1)?.isIn ?? false)) found.set(block.cidr, isIn);
    around.push({ block, isIn });
  }
  return found;
}

/** Returns the same addresses as disjoint sorted ranges: an address, a block, or `first-last`. */
export function* rangesOf(nested: NestedBlocks): Generator<string, void, void> {
  const [some] = nested.keys();
  if (some === undefined) return;
  const family = cidrFamilyOf(some);
  for (const range of numericRanges(nested)) {
    const [block] = blocksOfRange({ family, ...range });
    const address = networkOf(block!);
    if (range.first === range.last) yield address;
    else if (rangeOf(block!).last === range.last) yield block!;
    else yield `${address}-${addressAt(range.last, family)}`;
  }
}

/** Answers whether nested blocks hold addresses. */
export class BlockMatcher {
  /** Nested blocks never change. */
  static readonly #known = new WeakMap<NestedBlocks, BlockMatcher>();
  readonly #nested: NestedBlocks;
  #index: CidrIndex<boolean> | undefined;
  #ranges: readonly NumericRange[] | undefined;

  /** Returns the matcher of these blocks. It is made once. */
  static of(nested: NestedBlocks): BlockMatcher {
    return BlockMatcher.#known.getOrInsertComputed(nested, () => new BlockMatcher(nested));
  }

  private constructor(nested: NestedBlocks) {
    this.#nested = nested;
  }

  /** Whether the set has an address. */
  contains(address: IpAddress): boolean {
    if (this.#index === undefined) {
      this.#index = new CidrIndex();
      for (const [cidr, isIn] of this.#nested) this.#index.add(cidr, isIn);
    }
    return this.#index.itemsAt(address).at(-1) ?? false;
  }

  /** Whether the set has every address of another set. */
  containsAll(other: BlockMatcher): boolean {
    if (this === other) return true;
    const own = this.#rangeList();
    let at = 0;
    return other.#rangeList().every(({ first, last }) => {
      while (at < own.length && own[at]!.last < first) at++;
      return at < own.length && own[at]!.first <= first && last <= own[at]!.last;
    });
  }

  #rangeList(): readonly NumericRange[] {
    return this.#ranges ??= [...numericRanges(this.#nested)];
  }
}

/** Each block and exception once. */
function* placeBlocks(
  blocks: readonly BlockWithExceptions[],
): Generator<void, readonly PlacedBlock[], void> {
  const placed = new Map<Cidr, PlacedBlock>();
  let seen = 0;
  const placeOf = (cidr: Cidr) =>
    placed.getOrInsertComputed(cidr, () => ({
      cidr,
      ...rangeOf(cidr),
      includedIn: [],
      excludedFrom: [],
    }));
  for (const [entry, { cidr, except }] of blocks.entries()) {
    placeOf(cidr).includedIn.push(entry);
    if (++seen % BLOCKS_PER_STEP === 0) yield;
    for (const each of except) {
      if (++seen % BLOCKS_PER_STEP === 0) yield;
      if (cidrFamilyOf(each) === cidrFamilyOf(cidr)) placeOf(each).excludedFrom.push(entry);
    }
  }
  return [...placed.values()];
}

/** A block comes before those inside it. */
function comparePlaces(left: PlacedBlock, right: PlacedBlock): number {
  if (left.first !== right.first) return left.first < right.first ? -1 : 1;
  return left.last > right.last ? -1 : left.last < right.last ? 1 : 0;
}

/**
 * Each block differs from the one around it, so that membership changes where one begins and where one
 * ends. Of places that are equal, each two cancel each other.
 */
function* numericRanges(nested: NestedBlocks): Generator<NumericRange, void, void> {
  let open: bigint[] = [];
  for (const place of changesOf(nested)) {
    if (open.at(-1) === place) open.pop();
    else if (open.length < 2) open.push(place);
    else {
      yield { first: open[0]!, last: open[1]! - 1n };
      open = [place];
    }
  }
  if (open.length === 2) yield { first: open[0]!, last: open[1]! - 1n };
}

/** The first address of each block, and the first one after it, in order. */
function* changesOf(nested: NestedBlocks): Generator<bigint, void, void> {
  const ends: bigint[] = [];
  for (const cidr of nested.keys()) {
    const { first, last } = rangeOf(cidr);
    while (ends.length > 0 && ends.at(-1)! <= first) yield ends.pop()!;
    yield first;
    ends.push(last + 1n);
  }
  yield* ends.reverse();
}
