import { assertEquals } from "@std/assert";
import { testServicePlan } from "../../tests/support/builders/service_plans.ts";
import { LAYOUT_MARK } from "./base_chains.ts";
import { EMPTY_TABLE, type TableReading } from "../netfilter/nft/table_listing.ts";
import { AppliedTable } from "./applied_table.ts";
import { claimsOf } from "./entry_id.ts";
import { arrangeEntry, type Entry } from "./entry.ts";

/** The entry of the cluster IP of a ServicePort with this number of endpoints. */
function entry(name: string, endpoints: number): Entry {
  const to = Array.from({ length: endpoints }, (_, index) => `10.0.0.${index + 1}:80`);
  const plan = testServicePlan({ name, clusterIp: `172.30.0.${name}`, to });
  return arrangeEntry(claimsOf(plan)[0]!, plan, undefined);
}

/** A table with these chains, each with its rules. */
function reading(rules: Readonly<Record<string, string>>): TableReading {
  return { ...EMPTY_TABLE, rules: new Map(Object.entries({ [LAYOUT_MARK]: "", ...rules })) };
}

/** Correct chains, besides the one that names the layout. */
function chainsOf({ chains }: AppliedTable): readonly string[] {
  return [...chains].filter((name) => name !== LAYOUT_MARK);
}

Deno.test("AppliedTable knows nothing before it was read, and not all before it was written", () => {
  const applied = new AppliedTable();
  const state = () => [applied.isKnown, applied.isWritten];
  assertEquals(state(), [false, false]);
  applied.adopt(undefined);
  assertEquals([state(), applied.reading], [[true, false], undefined]);
  const read = reading({ services: "drop" });
  applied.adopt(read);
  assertEquals([state(), applied.reading], [[true, false], read]);
  applied.confirm({ chains: [], entries: [] });
  assertEquals([state(), applied.reading], [[true, true], undefined]);
  applied.forget();
  assertEquals(state(), [false, false]);
});

Deno.test("AppliedTable keeps confirmed objects until they are replaced or removed", () => {
  const applied = new AppliedTable();
  const [one, two] = [entry("1", 2), entry("2", 2)];
  const shared = [{ container: "service-cidrs", key: "172.30.0.0/16" }] as const;
  applied.confirm({ chains: ["to-2"], entries: [one, two], shared });
  assertEquals([[...applied.lastEntries()].length, applied.entry(one.id) === one], [2, true]);
  const changed = entry("1", 1);
  applied.confirm({ chains: ["to-1"], entries: [changed], removedEntries: [two.id] });
  assertEquals([[...applied.lastEntries()].length, applied.entry(one.id) === changed], [1, true]);
  assertEquals([applied.entry(two.id), applied.shared], [undefined, shared]);
  applied.forget();
  assertEquals([applied.entry(one.id), applied.shared, applied.chains.size], [undefined, [], 0]);
});

Deno.test("AppliedTable counts the references to a chain", () => {
  const applied = new AppliedTable();
  const [one, two] = [entry("1", 2), entry("2", 2)];
  applied.confirm({ chains: ["services", "to-2"], entries: [one, two] });
  assertEquals(applied.idleChains(), ["services"]);
  applied.confirm({ chains: [], entries: [], removedEntries: [one.id] });
  assertEquals(applied.idleChains(), ["services"], "the other one still does");
  applied.confirm({ chains: [], entries: [entry("2", 0)] });
  assertEquals(applied.idleChains(), ["services", "to-2"]);
  applied.confirm({ chains: [], entries: [two] });
  assertEquals(applied.idleChains(), ["services"]);
});

Deno.test("AppliedTable keeps chains apart that no number leads to", () => {
  const applied = new AppliedTable();
  applied.confirm({ chains: ["to-2", "to-3"], entries: [] });
  applied.confirm({ chains: [], entries: [], unnumberedChains: ["to-2"] });
  assertEquals([[...applied.chains], [...applied.unnumberedChains]], [["to-3"], ["to-2"]]);
  applied.confirm({ chains: ["to-2"], entries: [] });
  assertEquals([[...applied.chains].sort(), applied.unnumberedChains.size], [["to-2", "to-3"], 0]);
  applied.confirm({ chains: [], entries: [], unnumberedChains: ["to-3"] });
  applied.confirm({ chains: [], entries: [], removedChains: ["to-3"] });
  assertEquals([[...applied.chains], applied.unnumberedChains.size], [["to-2"], 0]);
});

Deno.test("AppliedTable treats rules as correct if they print as after the write", () => {
  const applied = new AppliedTable();
  const adopt = (rules: Readonly<Record<string, string>>) => {
    applied.adopt(reading(rules));
    return [chainsOf(applied), applied.changedObjects];
  };
  for (const when of ["before the first write", "before the second"]) {
    assertEquals(adopt({ services: "print" }), [[], 0], `its correct print is unknown ${when}`);
    applied.confirm({ chains: ["services"], entries: [] });
  }
  assertEquals(adopt({ services: "print" }), [["services"], 0]);
  assertEquals(adopt({ services: "other" }), [[], 1]);
  applied.confirm({ chains: ["services"], entries: [] });
  assertEquals(adopt({ services: "print" }), [[], 0], "it is read again after a change");
  assertEquals(adopt({ services: "print" }), [["services"], 0]);
  assertEquals(adopt({}), [[], 0]);
});

Deno.test("AppliedTable does not report a chain as changed that was written since it was read", () => {
  const applied = new AppliedTable();
  applied.adopt(reading({ "to-2": "print" }));
  applied.confirm({ chains: ["to-2"], entries: [] });
  applied.confirm({ chains: [], entries: [], unnumberedChains: ["to-2"] });
  applied.confirm({ chains: ["to-2"], entries: [] });
  applied.adopt(reading({ "to-2": "another" }));
  assertEquals([chainsOf(applied), applied.changedObjects], [[], 0]);
});

Deno.test("AppliedTable forgets the print of rules when the wanted ones change", () => {
  const applied = new AppliedTable();
  applied.adopt(reading({ services: "print" }));
  applied.forgetRules();
  applied.adopt(reading({ services: "another" }));
  assertEquals([applied.chains.size, applied.changedObjects], [0, 0]);
  // What is read before the write has the former rules.
  applied.confirm({ chains: ["services"], entries: [] });
  applied.forgetRules();
  applied.adopt(reading({ services: "another" }));
  applied.confirm({ chains: ["services"], entries: [] });
  for (const isCorrect of [false, true]) {
    applied.adopt(reading({ services: "new" }));
    assertEquals([applied.chains.has("services"), applied.changedObjects], [isCorrect, 0]);
    applied.confirm({ chains: isCorrect ? [] : ["services"], entries: [] });
  }
});

Deno.test("AppliedTable requests a new table if declarations of maps have changed", () => {
  const applied = new AppliedTable();
  const adopt = (declaration: string) => {
    const declarations = new Map([["endpoints", declaration]]);
    applied.adopt({ ...reading({ services: "print" }), declarations });
    return [applied.isToBeReplaced, applied.changedObjects];
  };
  assertEquals(adopt("type a : b"), [false, 0], "its correct print is unknown");
  assertEquals(adopt("type a : b"), [false, 0]);
  assertEquals([adopt("type a : c"), applied.chains.size], [[true, 1], 0]);
  assertEquals(adopt("type a : b"), [false, 0], "it was replaced, and is read again");
});

Deno.test("AppliedTable counts a dormant table as changed, and keeps it", () => {
  const applied = new AppliedTable();
  applied.adopt({ ...reading({}), isDormant: true });
  assertEquals([applied.changedObjects, applied.isToBeReplaced], [1, false]);
});
