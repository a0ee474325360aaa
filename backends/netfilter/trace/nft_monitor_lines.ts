import type { IpFamily } from "../../../lib/net/ip_address.ts";
import { nftFamily } from "../nft/nft_objects.ts";

/**
 * Returns command lines, the best one first.
 *
 * nft reads all rules of the machine before it watches, only to print their texts: at ten thousand
 * Services this takes one to three seconds and 150 MB. The last command determines what is read
 * (`nft_cache_evaluate()`; checked with 1.0.6), so a listing of a table with two rules follows the
 * monitor, which never ends. Rules are then printed as numbers and looked up afterwards. An nft
 * without this optimization reads everything; one that refuses two commands gets the second line.
 */
export function nftMonitorLines(
  { family, table }: { readonly family: IpFamily; readonly table: string },
): readonly (readonly string[])[] {
  return [
    ["nft", "-a", `monitor trace; list table ${nftFamily(family)} ${table}`],
    ["nft", "-a", "monitor", "trace"],
  ];
}
