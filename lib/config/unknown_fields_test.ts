import { assertEquals } from "@std/assert";
import { unknownFields } from "./unknown_fields.ts";

const TREE = { mode: undefined, iptables: { syncPeriod: undefined, minSyncPeriod: undefined } };

Deno.test("unknownFields() finds fields that are none, at any depth, with the nearest name", () => {
  assertEquals(unknownFields({ mod: 1, iptables: { syncperiod: 1 }, other: { mode: 1 } }, TREE), [
    { path: ["mod"], message: "Field 'mod' is unknown and ignored; did you mean 'mode'?" },
    {
      path: ["iptables", "syncperiod"],
      message: "Field 'iptables.syncperiod' is unknown and ignored; did you mean 'syncPeriod'?",
    },
    { path: ["other"], message: "Field 'other' is unknown and ignored" },
  ]);
});

Deno.test("unknownFields() finds nothing where there is nothing to find", () => {
  for (const value of [null, "text", [], {}, { mode: { anything: 1 } }, { iptables: null }]) {
    assertEquals(unknownFields(value, TREE), []);
  }
});

Deno.test("unknownFields() does not take what every object has for a field, retired or not", () => {
  assertEquals(unknownFields({ constructor: 1 }, TREE), [
    { path: ["constructor"], message: "Field 'constructor' is unknown and ignored" },
  ]);
});
