/**
 * Blocks without their exceptions, as blocks again.
 *
 * @module
 */
import ipaddr from "ipaddr.js";
import { type Cidr, cidrFamilyOf, prefixLengthOf } from "./cidr.ts";
import type { IpFamily } from "./ip_address.ts";

/** A block and its exceptions. */
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
 * Returns the addresses that are in any of the blocks and in no exception of the same block, as the
 * fewest blocks, disjoint and sorted. All must be of one family. Returns `undefined` if there would
 * be more than `most`. Costs n log n of the input, plus the result.
 */
export function blocksWithoutExceptions(
  blocks: readonly BlockWithExceptions[],
  { family, most }: { readonly family: IpFamily; readonly most: number },
): readonly Cidr[] | undefined {
  const bits = family === "IPv4" ? 32 : 128;
  const found: Cidr[] = [];
  for (const { first, last } of merged(blocks.flatMap(remainderOf))) {
    for (let next = first; next <= last;) {
      if (found.length === most) return undefined;
      // The largest block that starts here and ends in the range.
      const aligned = next === 0n ? bits : bitLength(next & -next) - 1;
      const hostBits = Math.min(aligned, bitLength(last - next + 1n) - 1);
      found.push(`${addressOf(next, family)}/${bits - hostBits}` as Cidr);
      next += 1n << BigInt(hostBits);
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

/** Bits of a number without leading zeros. */
function bitLength(value: bigint): number {
  const digits = value.toString(16);
  return digits.length * 4 + 28 - Math.clz32(parseInt(digits.charAt(0), 16));
}

function rangeOf(cidr: Cidr): Range {
  const address = cidr.slice(0, cidr.indexOf("/"));
  const bytes = address.includes(":")
    ? ipaddr.IPv6.parse(address).toByteArray()
    : address.split(".").map(Number);
  const first = BigInt(`0x${bytes.map((byte) => byte.toString(16).padStart(2, "0")).join("")}`);
  const size = 1n << BigInt(bytes.length * 8 - prefixLengthOf(cidr));
  return { first, last: first + size - 1n };
}

function addressOf(value: bigint, family: IpFamily): string {
  if (family === "IPv4") {
    const number = Number(value);
    return [24, 16, 8, 0].map((shift) => number >>> shift & 255).join(".");
  }
  const digits = value.toString(16).padStart(32, "0");
  const groups = digits.match(/.{4}/g)!.map((group) => group.replace(/^0{1,3}/, ""));
  // RFC 5952: the first of the longest runs of zeros is left out. The library takes ten times as long.
  const [longest = ""] = (groups.join(":").match(/(?<![^:])0(?::0)+(?![^:])/g) ?? [])
    .sort((left, right) => right.length - left.length);
  if (longest === "") return groups.join(":");
  const text = `:${groups.join(":")}:`.replace(`:${longest}:`, "::");
  return text.replace(/^:(?!:)/, "").replace(/(?<!:):$/, "");
}
