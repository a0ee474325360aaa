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
