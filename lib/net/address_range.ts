/**
 * Ranges of addresses, as pools have them.
 *
 * @module
 */
import { type Cidr, cidrFamilyOf, networkOf, prefixLengthOf, tryParseCidr } from "./cidr.ts";
import {
  addressAt,
  addressNumber,
  type IpFamily,
  ipFamilyOf,
  tryParseIpAddress,
} from "./ip_address.ts";

/** Addresses of one family, both ends included. */
export interface AddressRange {
  readonly family: IpFamily;
  readonly first: bigint;
  readonly last: bigint;
}

/**
 * Parses a CIDR block, an address, or a range `first-last`. Returns `undefined` for anything else,
 * also for a range whose ends are of two families or in the wrong order.
 */
export function tryParseAddressRange(text: string): AddressRange | undefined {
  const cidr = tryParseCidr(text);
  if (cidr !== undefined) return rangeOf(cidr);
  const ends = text.split("-").map((end) => tryParseIpAddress(end.trim()));
  const [start, end = start] = ends;
  if (ends.length > 2 || start === undefined || ends.includes(undefined)) return undefined;
  const family = ipFamilyOf(start);
  const [first, last] = [addressNumber(start), addressNumber(end!)];
  return ipFamilyOf(end!) === family && first <= last ? { family, first, last } : undefined;
}

/** Returns the same addresses as the fewest ranges, in order. */
export function joinRanges(ranges: readonly AddressRange[]): readonly AddressRange[] {
  const joined: AddressRange[] = [];
  const order = ({ family, first }: AddressRange) =>
    (family === "IPv4" ? -(2n ** 128n) : 0n) + first;
  for (const range of ranges.toSorted((a, b) => order(a) < order(b) ? -1 : 1)) {
    const before = joined.at(-1);
    if (before?.family !== range.family || before.last + 1n < range.first) joined.push(range);
    else if (before.last < range.last) joined[joined.length - 1] = { ...before, last: range.last };
  }
  return joined;
}

/** Returns the addresses of a block. */
export function rangeOf(cidr: Cidr): AddressRange {
  const family = cidrFamilyOf(cidr);
  const bits = family === "IPv4" ? 32 : 128;
  const first = addressNumber(networkOf(cidr));
  return { family, first, last: first + (1n << BigInt(bits - prefixLengthOf(cidr))) - 1n };
}

/** Whether two ranges have an address in common. */
export function overlap(left: AddressRange, right: AddressRange): boolean {
  return left.family === right.family && left.first <= right.last && right.first <= left.last;
}

/** Returns the fewest blocks that together are exactly a range, in order. */
export function* blocksOfRange(
  { family, first, last }: AddressRange,
): Generator<Cidr, void, void> {
  const bits = family === "IPv4" ? 32 : 128;
  for (let next = first; next <= last;) {
    // The largest block that starts here and ends in the range.
    const aligned = next === 0n ? bits : bitLength(next & -next) - 1;
    const hostBits = Math.min(aligned, bitLength(last - next + 1n) - 1);
    yield `${addressAt(next, family)}/${bits - hostBits}` as Cidr;
    next += 1n << BigInt(hostBits);
  }
}

/** Bits of a number without leading zeros. */
function bitLength(value: bigint): number {
  const digits = value.toString(16);
  return digits.length * 4 + 28 - Math.clz32(parseInt(digits.charAt(0), 16));
}
