/**
 * Sets of CIDR blocks. A Service may have thousands of source ranges, so no code here compares each
 * block with every other one, and each connection may be compared with them, so a look-up makes no
 * text.
 *
 * @module
 */
import {
  type AddressBits,
  bitsOf,
  type Cidr,
  cidrFamilyOf,
  networkOf,
  prefixLengthOf,
  prefixOf,
} from "./cidr.ts";
import { type IpAddress, type IpFamily, ipFamilyOf } from "./ip_address.ts";

/** The union of some blocks, which may contain each other. */
export class CidrCover {
  /** The blocks that no other block contains, each once, in the given order. */
  readonly outermost: readonly Cidr[];
  readonly #index = new CidrIndex<Cidr>();

  constructor(cidrs: readonly Cidr[]) {
    const blocks = new Set(cidrs);
    for (const cidr of blocks) this.#index.add(cidr, cidr);
    this.outermost = [...blocks].filter((cidr) =>
      !this.#index.hasAt(networkOf(cidr), prefixLengthOf(cidr))
    );
  }

  /** Whether any of the blocks contains an address. */
  contains(address: IpAddress): boolean {
    return this.#index.hasAt(address);
  }
}

/** Items of many lists of blocks. Finds them by an address without examining each list. */
export class CidrIndex<Item> {
  /** The blocks by their prefix lengths, shortest first. */
  readonly #levels: Readonly<
    Record<IpFamily, { readonly length: number; readonly items: Map<AddressBits, Item[]> }[]>
  > = { IPv4: [], IPv6: [] };

  /** Files an item under a block. */
  add(cidr: Cidr, item: Item): void {
    const length = prefixLengthOf(cidr);
    const levels = this.#levels[cidrFamilyOf(cidr)];
    const place = levels.findIndex((level) => level.length >= length);
    let level = levels[place];
    if (level?.length !== length) {
      level = { length, items: new Map() };
      levels.splice(place < 0 ? levels.length : place, 0, level);
    }
    const prefix = prefixOf(bitsOf(networkOf(cidr)), length);
    level.items.getOrInsertComputed(prefix, () => []).push(item);
  }

  /** The items of all blocks that contain an address, those of larger blocks first. */
  itemsAt(address: IpAddress): readonly Item[] {
    const bits = bitsOf(address);
    return this.#levels[ipFamilyOf(address)].flatMap(({ items, length }) =>
      items.get(prefixOf(bits, length)) ?? []
    );
  }

  /** Whether a block with a prefix shorter than this contains an address. */
  hasAt(address: IpAddress, below = Infinity): boolean {
    const bits = bitsOf(address);
    for (const { items, length } of this.#levels[ipFamilyOf(address)]) {
      if (length >= below) return false;
      if (items.has(prefixOf(bits, length))) return true;
    }
    return false;
  }
}
