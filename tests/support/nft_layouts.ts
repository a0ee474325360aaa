/**
 * The table of nftables mode as earlier versions laid it out.
 *
 * @module
 */
import { LAYOUT_MARK } from "../../backends/nftables/base_chains.ts";

/** The text of a table of today in the layout whose mark was `layout-1`. */
export function asLayout1(text: string): string {
  return text.replaceAll(LAYOUT_MARK, "layout-1").replaceAll("numbered-chains", "chains");
}
