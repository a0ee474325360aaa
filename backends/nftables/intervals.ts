/**
 * Intervals of addresses as nft prints them. Pure.
 *
 * @module
 */
import { type IpFamily, parseIpAddress } from "../../lib/net/ip_address.ts";

/** Where an interval of a set begins, or the first address after its end. */
export interface IntervalBound {
  readonly address: bigint;
  readonly isEnd: boolean;
}

const BITS: Readonly<Record<IpFamily, number>> = { IPv4: 32, IPv6: 128 };

/** From the first address to the last: an address alone, a CIDR where it is one, or both ends. */
export function rangeText(
  [first, last]: readonly [first: bigint, last: bigint],
  family: IpFamily,
): string {
  const text = addressText(first, family);
  if (first === last) return text;
  const size = last - first + 1n;
  const isPower = size > 0n && (size & (size - 1n)) === 0n;
  if (!isPower || first % size !== 0n) return `${text}-${addressText(last, family)}`;
  return `${text}/${BITS[family] - (size.toString(2).length - 1)}`;
}

/** The intervals between bounds; one whose end is missing reaches to the last address of all. */
export function cidrsOfBounds(
  bounds: readonly IntervalBound[],
  family: IpFamily,
): readonly string[] {
  // From the last address on; where one interval ends and the next begins, the beginning comes first.
  const sorted = bounds.toSorted((left, right) =>
    left.address === right.address
      ? Number(left.isEnd) - Number(right.isEnd)
      : left.address < right.address
      ? 1
      : -1
  );
  const texts: string[] = [];
  let after = 1n << BigInt(BITS[family]);
  for (const { address, isEnd } of sorted) {
    if (isEnd) after = address;
    else texts.push(rangeText([address, after - 1n], family));
  }
  return texts.reverse();
}

/** A number as an address, in the spelling of {@linkcode parseIpAddress}. */
export function addressText(address: bigint, family: IpFamily): string {
  const width = family === "IPv4" ? 8n : 16n;
  const count = family === "IPv4" ? 4 : 8;
  const parts = Array.from({ length: count }, (_, index) => {
    const part = address >> width * BigInt(count - 1 - index) & (1n << width) - 1n;
    return part.toString(family === "IPv4" ? 10 : 16);
  });
  return family === "IPv4" ? parts.join(".") : parseIpAddress(parts.join(":"));
}
