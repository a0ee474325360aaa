/**
 * The table of nftables mode as earlier versions laid it out.
 *
 * @module
 */
import { LAYOUT_MARK } from "../../../backends/nftables/chain_spec.ts";

const PORT = "meta l4proto \\. th dport";

/**
 * Replacements that turn a table into an older layout: affinity was kept by address and port, not
 * by ServicePort.
 */
const CLIENTS: readonly (readonly [RegExp, string])[] = [
  [
    /typeof meta priority \. ip saddr : meta priority/g,
    "typeof ip saddr . ip daddr . meta l4proto . th dport : meta priority",
  ],
  [
    new RegExp(
      `meta priority set 0x8000[08]000 meta priority set (?:ip6? daddr \\. )?${PORT} ` +
        String.raw`\. meta priority map @(?:node-port-)?choices `,
      "g",
    ),
    "",
  ],
  [/meta priority and 0xbfff8000 \. ip saddr/g, "ip saddr . ip daddr . meta l4proto . th dport"],
  [
    /typeof meta priority \. (numgen random mod 65536 \. numgen random mod 65536) : meta priority/g,
    "typeof $1 : meta priority",
  ],
  [/meta priority and 0xbfff8000 \. (?=jhash)/g, ""],
  [/jhash ip6 saddr mod/g, "jhash ip6 saddr . ip6 daddr . meta l4proto . th dport mod"],
];

/** The text of a current table in the layout whose mark was `layout-2`. */
export function asLayout2(text: string): string {
  return CLIENTS.reduce(
    (old, [today, then]) => old.replaceAll(today, then),
    text.replaceAll(LAYOUT_MARK, "layout-2"),
  );
}

/** The same in the one before, `layout-1`. */
export function asLayout1(text: string): string {
  return asLayout2(text).replaceAll("layout-2", "layout-1").replaceAll("numbered-chains", "chains");
}
