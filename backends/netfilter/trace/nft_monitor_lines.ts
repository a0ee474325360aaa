/**
 * How `nft monitor trace` is started. Pure.
 *
 * @module
 */
import type { IpFamily } from "../../../lib/net/ip_address.ts";
import { nftFamily } from "../nft/nft_objects.ts";

/**
 * Command lines, the best one first.
 *
 * nft reads all rules of the machine before it watches, only to print their texts: at ten thousand
 * Services that takes one to three seconds and 150 MB. What is read is narrowed by the command that is
 * given last (`nft_cache_evaluate()`; checked with 1.0.6), so behind the monitor, which never ends,
 * stands one that lists a table of two rules. The rules passed are known by their numbers then, and
 * looked up afterwards. An nft that does not narrow reads everything, as before; one that refuses two
 * commands gets the second line.
 */
export function nftMonitorLines(
  { family, table }: { readonly family: IpFamily; readonly table: string },
): readonly (readonly string[])[] {
  return [
    ["nft", "-a", `monitor trace; list table ${nftFamily(family)} ${table}`],
    ["nft", "-a", "monitor", "trace"],
  ];
}
