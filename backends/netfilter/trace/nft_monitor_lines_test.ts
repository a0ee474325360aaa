import { assertEquals } from "@std/assert";
import { nftMonitorLines } from "./nft_monitor_lines.ts";

Deno.test("nftMonitorLines() narrows what nft reads by a table of its own, which it lists last", () => {
  assertEquals(nftMonitorLines({ family: "IPv6", table: "kube-relay-trace-7" }), [
    ["nft", "-a", "monitor trace; list table ip6 kube-relay-trace-7"],
    ["nft", "-a", "monitor", "trace"],
  ]);
});
