import { assertEquals } from "@std/assert";
import { RuleTotals } from "./rule_totals.ts";

Deno.test("RuleTotals counts what each chain holds now", () => {
  const totals = new RuleTotals();
  totals.confirm([
    { table: "nat", name: "A", rules: ["-j B", "-j C"] },
    { table: "nat", name: "B", rules: [] },
    { table: "filter", name: "A", rules: ["-j DROP"] },
  ]);
  assertEquals(totals.totals, { filter: 1, mangle: 0, nat: 2 });
  totals.confirm([{ table: "nat", name: "A", rules: ["-j C"] }, { table: "filter", name: "A" }]);
  assertEquals(totals.totals, { filter: 0, mangle: 0, nat: 1 });
  totals.confirm([{ table: "nat", name: "NEVER-SEEN" }]);
  assertEquals(totals.totals.nat, 1);
  totals.confirm([{ table: "filter", name: "A", rules: ["-j DROP"] }]);
  totals.clear("nat");
  assertEquals(totals.totals, { filter: 1, mangle: 0, nat: 0 });
  totals.confirm([{ table: "nat", name: "A", rules: ["-j C"] }]);
  assertEquals(totals.totals, { filter: 1, mangle: 0, nat: 1 });
});
