/**
 * What of a packet is looked up, as nft spells it. Pure.
 *
 * @module
 */
import type { IpFamily } from "../../lib/net/ip_address.ts";

/** Expressions of one IP family. */
export interface FamilyExpressions {
  /** The family of the table. */
  readonly table: "ip" | "ip6";
  /** The type of an address. */
  readonly address: "ipv4_addr" | "ipv6_addr";
  readonly source: string;
  readonly destination: string;
  /** Every address that never leaves a machine. */
  readonly loopback: string;
  /** By what a client of a Service address is known again. */
  readonly client: string;
  /** The type of {@linkcode FamilyExpressions.client}. */
  readonly clientType: string;
}

/** Protocol and port that a packet is for. */
export const PORT = "meta l4proto . th dport";

/**
 * A 32-bit whole number as a type. A named type for that is missing in nft; `typeof` takes the one
 * of any expression that has it.
 */
export const NUMBER = "numgen random mod 65536";

const IPV4_CLIENT = `ip saddr . ip daddr . ${PORT}`;
const IPV6_CLIENT = `ip6 saddr . ip6 daddr . ${PORT}`;

/**
 * nft 1.0.6 gives the key of an `update` no more than 16 bytes of registers, whatever its length,
 * and ends on an assertion; two addresses of IPv6 alone are 32. So a client is known by 64 bits of
 * hash. Two that have the same would take each other's endpoint away, no more.
 */
function hashed(seed: string): string {
  return `jhash ${IPV6_CLIENT} mod 4294967295 seed ${seed}`;
}

/** By IP family. */
export const EXPRESSIONS: Readonly<Record<IpFamily, FamilyExpressions>> = {
  IPv4: {
    table: "ip",
    address: "ipv4_addr",
    source: "ip saddr",
    destination: "ip daddr",
    loopback: "127.0.0.0/8",
    client: IPV4_CLIENT,
    clientType: IPV4_CLIENT,
  },
  IPv6: {
    table: "ip6",
    address: "ipv6_addr",
    source: "ip6 saddr",
    destination: "ip6 daddr",
    loopback: "::1",
    client: `${hashed("0x6b756265")} . ${hashed("0x72656c61")}`,
    // Named by `typeof jhash`, the map could not be listed: nft 1.0.6 ends on a segmentation fault.
    clientType: `${NUMBER} . ${NUMBER}`,
  },
};
