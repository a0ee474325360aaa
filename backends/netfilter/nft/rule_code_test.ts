import { assertEquals } from "@std/assert";
import { RuleCodeListing } from "./nft_runner.ts";

/** One pass of nft over a table with a set and these rules. */
function pass(...rules: readonly string[]): readonly string[] {
  return [
    "ip kube-relay @cluster-ips",
    "\telement 04001eac  : 0 [end]",
    ...rules.flatMap((rule, index) => [`ip kube-relay services ${index + 4}`, `  [ ${rule} ]`, ""]),
  ];
}

Deno.test("RuleCodeListing starts again with nft after a write of another program", () => {
  const listing = new RuleCodeListing({ family: "ip", name: "kube-relay" });
  for (const line of [...pass("old", "gone"), ...pass("old", "new")]) listing.take(line);
  assertEquals(listing.code.get("services"), ["[ old ]\n", "[ new ]\n"]);
});

Deno.test("RuleCodeListing leaves out the chains that nft 1.1 prints, also one named 'use'", () => {
  const listing = new RuleCodeListing({ family: "ip", name: "zz" });
  const lines = [
    "ip zz c use 0",
    "ip zz use use 0 type nat hook output prio 0",
    "ip zz use",
    "  [ a ]",
  ];
  for (const line of lines) listing.take(line);
  assertEquals([...listing.code], [["use", ["[ a ]\n"]]]);
});
