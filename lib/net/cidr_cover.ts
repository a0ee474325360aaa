/**
 * The union of several CIDR blocks. A Service may have thousands of source ranges, so no code here
 * compares each block with every other one.
 *
 * @module
 */
import ipaddr from "ipaddr.js";
import { type Cidr, hostCidr, prefixLengthOf } from "./cidr.ts";
import type { IpAddress } from "./ip_address.ts";

/** The union of some blocks, which may contain each other. */
export class CidrCover {
  /** The blocks that no other block contains, each once, in the given order. */
  readonly outermost: readonly Cidr[];
  readonly #bits: ReadonlySet<string>;

  constructor(cidrs: readonly Cidr[]) {
    const blocks = [...new Set(cidrs)].map((cidr) => ({ cidr, bits: bitsOf(cidr) }));
    const kept = new Map<Cidr, string>();
    let outer: string | undefined;
    // The blocks inside a block come right after it.
    for (
      const { cidr, bits } of blocks.toSorted((left, right) => left.bits < right.bits ? -1 : 1)
    ) {
      if (outer !== undefined && bits.startsWith(outer)) continue;
      outer = bits;
      kept.set(cidr, bits);
    }
    this.outermost = blocks.map(({ cidr }) => cidr).filter((cidr) => kept.has(cidr));
    this.#bits = new Set(kept.values());
  }

  /** Whether any of the blocks contains an address. */
  contains(address: IpAddress): boolean {
    const bits = bitsOf(hostCidr(address));
    for (let length = 1; length <= bits.length; length++) {
      if (this.#bits.has(bits.slice(0, length))) return true;
    }
    return false;
  }
}

/** Items of many lists of blocks. Finds them by an address without examining each list. */
export class CidrIndex<Item> {
  readonly #items = new Map<string, Item[]>();

  /** Files an item under a block. */
  add(cidr: Cidr, item: Item): void {
    this.#items.getOrInsertComputed(bitsOf(cidr), () => []).push(item);
  }

  /** The items of all blocks that contain an address, those of larger blocks first. */
  itemsAt(address: IpAddress): readonly Item[] {
    const bits = bitsOf(hostCidr(address));
    const found: Item[] = [];
    for (let length = 1; length <= bits.length; length++) {
      found.push(...this.#items.get(bits.slice(0, length)) ?? []);
    }
    return found;
  }
}

/**
 * Returns the family and the fixed bits of a block as text, which is a prefix of the text of every
 * block inside it.
 */
function bitsOf(cidr: Cidr): string {
  const address = cidr.slice(0, cidr.indexOf("/"));
  // Nearly all are IPv4, and the library takes ten times as long.
  const bytes = address.includes(":")
    ? ipaddr.IPv6.parse(address).toByteArray()
    : address.split(".").map(Number);
  const bits = bytes.map((byte) => byte.toString(2).padStart(8, "0")).join("");
  return `${bytes.length} ${bits.slice(0, prefixLengthOf(cidr))}`;
}
