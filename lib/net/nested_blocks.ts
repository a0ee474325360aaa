/**
 * Blocks without their exceptions. Their size follows what was written: an exception of one address in
 * `::/0` is one more block inside another, or one more range, and not the 128 blocks around it.
 *
 * @module
 */
import { rangeOf } from "./address_range.ts";
import { type Cidr, cidrFamilyOf } from "./cidr.ts";
import { CidrIndex } from "./cidr_cover.ts";
import { sortInSteps } from "./steps.ts";
import { addressAt, type IpAddress, type IpFamily } from "./ip_address.ts";

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
interface AddressRange {
  readonly first: bigint;
  readonly last: bigint;
}

/** A block of the input, and the entries that it begins or is taken out of, by their place. */
interface PlacedBlock extends AddressRange {
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
  const union = new OpenEntries(blocks.length);
  const around: { readonly block: PlacedBlock; readonly isIn: boolean }[] = [];
  const sorted = yield* sortInSteps(yield* placeBlocks(blocks), comparePlaces);
  for (const [index, block] of sorted.entries()) {
    if (index % BLOCKS_PER_STEP === 0) yield;
    while (around.length > 0 && around.at(-1)!.block.last < block.first) {
      union.leave(around.pop()!.block);
    }
    union.enter(block);
    const isIn = union.isIn;
    if (isIn !== (around.at(-1)?.isIn ?? false)) found.set(block.cidr, isIn);
    around.push({ block, isIn });
  }
  return found;
}

/** Returns the same addresses as disjoint sorted ranges: an address, a block, or `first-last`. */
export function* rangesOf(nested: NestedBlocks): Generator<string, void, void> {
  for (const { range, family } of numericRanges(nested)) yield rangeText(range, family);
}

/** Answers whether nested blocks hold addresses. */
export class BlockMatcher {
  /** Nested blocks never change. */
  static readonly #known = new WeakMap<NestedBlocks, BlockMatcher>();
  readonly #nested: NestedBlocks;
  #index: CidrIndex<boolean> | undefined;
  #ranges: readonly AddressRange[] | undefined;

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

  #rangeList(): readonly AddressRange[] {
    return this.#ranges ??= [...numericRanges(this.#nested)].map(({ range }) => range);
  }
}

/** The entries whose block is open, while blocks are walked in order. */
class OpenEntries {
  readonly #isOpen: Uint8Array;
  readonly #exceptions: Uint32Array;
  #included = 0;

  constructor(count: number) {
    this.#isOpen = new Uint8Array(count);
    this.#exceptions = new Uint32Array(count);
  }

  /** Whether some entry has the addresses here. */
  get isIn(): boolean {
    return this.#included > 0;
  }

  enter({ includedIn, excludedFrom }: PlacedBlock): void {
    for (const entry of excludedFrom) {
      if (this.#exceptions[entry]!++ === 0 && this.#isOpen[entry]) this.#included--;
    }
    for (const entry of includedIn) {
      this.#isOpen[entry] = 1;
      if (this.#exceptions[entry] === 0) this.#included++;
    }
  }

  leave({ includedIn, excludedFrom }: PlacedBlock): void {
    for (const entry of includedIn) {
      this.#isOpen[entry] = 0;
      if (this.#exceptions[entry] === 0) this.#included--;
    }
    for (const entry of excludedFrom) {
      if (--this.#exceptions[entry]! === 0 && this.#isOpen[entry]) this.#included++;
    }
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

function* numericRanges(
  nested: NestedBlocks,
): Generator<{ readonly range: AddressRange; readonly family: IpFamily }, void, void> {
  const [some] = nested.keys();
  if (some === undefined) return;
  const family = cidrFamilyOf(some);
  let [first, end]: [bigint | undefined, bigint | undefined] = [undefined, undefined];
  for (const { at, isIn } of transitions(nested)) {
    if (isIn) {
      if (first !== undefined && end !== undefined && end < at) {
        yield { range: { first, last: end - 1n }, family };
        first = undefined;
      }
      first ??= at;
      end = undefined;
    } else if (first !== undefined) end ??= at;
    // A block that begins with an exception holds nothing before it.
    if (first === end) [first, end] = [undefined, undefined];
  }
  if (first !== undefined && end !== undefined) yield { range: { first, last: end - 1n }, family };
}

/** Whether the addresses from `at` on are in the set. Of several for one address the last one counts. */
function* transitions(
  nested: NestedBlocks,
): Generator<{ readonly at: bigint; readonly isIn: boolean }, void, void> {
  const around: { readonly last: bigint; readonly isIn: boolean }[] = [];
  function* leave(before: bigint | undefined) {
    while (around.length > 0 && (before === undefined || around.at(-1)!.last < before)) {
      const { last } = around.pop()!;
      yield { at: last + 1n, isIn: around.at(-1)?.isIn ?? false };
    }
  }
  for (const [cidr, isIn] of nested) {
    const { first, last } = rangeOf(cidr);
    yield* leave(first);
    around.push({ last, isIn });
    yield { at: first, isIn };
  }
  yield* leave(undefined);
}

function rangeText({ first, last }: AddressRange, family: IpFamily): string {
  const size = last - first + 1n;
  const text = addressAt(first, family);
  if (size === 1n) return text;
  const isBlock = (size & size - 1n) === 0n && (first & size - 1n) === 0n;
  if (!isBlock) return `${text}-${addressAt(last, family)}`;
  const bits = family === "IPv4" ? 32 : 128;
  return `${text}/${bits - (size.toString(2).length - 1)}`;
}
