import { assert, assertEquals } from "@std/assert";
import { AppliedRules, contentHash, RuleTotals } from "./applied_rules.ts";

Deno.test("AppliedRules keeps confirmed rules, and knows which ones are unknown", () => {
  const applied = new AppliedRules();
  const chain = { table: "nat", name: "A", rules: ["-j B"] } as const;
  applied.confirm([chain, { ...chain, table: "filter" }]);
  assert(applied.holds(chain) && applied.has(chain));
  assert(!applied.holds({ ...chain, rules: ["-j C"] }));
  assertEquals(applied.filterRules("A"), ["-j B"]);
  applied.adopt("nat", new Map([["A", ["-j B"]]]));
  assert(applied.has(chain) && applied.holds(chain));
  applied.adopt("nat", new Map([["A", ["-s 10.0.0.1/32 -j B"]]]));
  assert(!applied.holds(chain));
  assert(applied.holds({ ...chain, rules: ["-s 10.0.0.1 -j B"] }), "read as the tool prints it");
  applied.confirm([{ table: "nat", name: "A" }]);
  assert(!applied.has(chain));
  applied.forget("filter");
  assertEquals(applied.names("filter"), []);
});

Deno.test("contentHash() differs by rule, order and where a rule ends", () => {
  const contents = [[], [""], ["a", "b"], ["b", "a"], ["ab"], ["a"]];
  const hashes = new Set(contents.map(contentHash));
  assertEquals(hashes.size, contents.length);
});

Deno.test("AppliedRules skips the comparison of a print that was found correct before", () => {
  const applied = new AppliedRules();
  const chain = { table: "nat", name: "A" } as const;
  const rules = ["-d 10.0.0.1 -j B"];
  const printed = new Map([["A", ["-d 10.0.0.1/32 -j B"]]]);
  applied.confirm([{ ...chain, rules }]);
  assert(applied.isCertain(chain));
  applied.adopt("nat", printed);
  assert(!applied.isCertain(chain), "no comparison has run yet");
  assert(applied.holds({ ...chain, rules }) && applied.isCertain(chain));
  applied.adopt("nat", printed);
  assert(applied.isCertain(chain) && applied.holds({ ...chain, rules }));
  applied.adopt("nat", new Map([["A", ["-d 10.0.0.1/32 -j C"]]]));
  assert(!applied.isCertain(chain) && !applied.holds({ ...chain, rules }));
  applied.confirm([{ ...chain, rules: ["-j D"] }]);
  applied.adopt("nat", printed);
  assert(!applied.isCertain(chain), "what was written since looks otherwise");
  applied.adopt("nat", new Map());
  assert(!applied.has(chain) && !applied.isCertain(chain));
});

Deno.test("RuleTotals counts the current rules of each chain", () => {
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
