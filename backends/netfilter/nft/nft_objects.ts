/**
 * The objects of a table of nftables, as values. Pure.
 *
 * This folder is the only toolkit for nft, for any family, table and owner. The purpose of a table
 * belongs to its user, e.g. the table of Services or that of the counters.
 *
 * | module               | purpose                                                                    |
 * | -------------------- | -------------------------------------------------------------------------- |
 * | `nft_objects.ts`     | tables, chains, sets, maps and elements                                    |
 * | `nft_transaction.ts` | changes as the text of one `nft -f -`; knows the owner of each line        |
 * | `table_listing.ts`   | reads what `nft list` prints, and spells it as it was given                |
 * | `nft_runner.ts`      | runs the program for one table: rules, their instructions, and its errors   |
 *
 * @module
 */
import type { IpFamily } from "../../../lib/net/ip_address.ts";

/** A table. */
export interface NftTable {
  /** The family in nft: `ip`, `ip6`, `inet` … */
  readonly family: string;
  readonly name: string;
}

/** A chain with its rules. */
export interface NftChain {
  readonly name: string;
  /** The hook at which the kernel enters the chain; absent = only other chains jump to it. */
  readonly hook?: string | undefined;
  readonly rules: readonly string[];
}

/** A set, whose elements are keys, or a map, whose elements have a value too. */
export interface NftContainer {
  readonly kind: "map" | "set";
  /** As nft reads it, with ` ; ` between its parts, e.g. `type ipv4_addr ; flags interval`. */
  readonly declaration: string;
}

/** A table, and its sets and maps in the order in which they are written. */
export interface NftTableSpec extends NftTable {
  readonly containers: ReadonlyMap<string, NftContainer>;
}

/** The name of a family in nft. */
export function nftFamily(family: IpFamily): "ip" | "ip6" {
  return family === "IPv6" ? "ip6" : "ip";
}

/** Formats a table for messages: `table ip kube-proxy (nftables)`. */
export function describeNftTable({ family, name }: NftTable): string {
  return `table ${family} ${name} (nftables)`;
}

/**
 * Text that deletes a table. It adds the table first: adding an existing table changes nothing, but
 * deleting a missing one would fail (nft before 1.0.7 has no `destroy`).
 */
export function deletionText({ family, name }: NftTable): string {
  return `add table ${family} ${name}\ndelete table ${family} ${name}\n`;
}
