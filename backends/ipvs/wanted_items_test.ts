import { assertEquals, assertThrows } from "@std/assert";
import fc from "fast-check";
import { WantedItems } from "./wanted_items.ts";

Deno.test("WantedItems reports missing and stale items, each once", () => {
  const ledger = new WantedItems<string>();
  ledger.claim("a");
  ledger.claim("a");
  ledger.claim("b");
  assertEquals([ledger.missing, ledger.stale], [["a", "b"], []]);
  ledger.settle();
  ledger.release("a");
  ledger.release("b");
  assertEquals([ledger.missing, ledger.stale], [[], ["b"]]);
  ledger.claim("b");
  assertEquals([ledger.missing, ledger.stale], [[], []]);
});

Deno.test("WantedItems.release() refuses an item without a claim", () => {
  assertThrows(() => new WantedItems<string>().release("a"), Error, "Cannot release 'a'");
});

Deno.test("WantedItems leads from the applied to the wanted items, whatever happened between", () => {
  const item = fc.constantFrom("a", "b", "c", "d");
  const step = fc.oneof(
    fc.record({ kind: fc.constantFrom("claim" as const, "release" as const), item }),
    fc.record({ kind: fc.constant("settle" as const) }),
    fc.record({ kind: fc.constant("adopt" as const), items: fc.subarray(["a", "b", "x"]) }),
  );
  fc.assert(fc.property(fc.array(step), (steps) => {
    const ledger = new WantedItems<string>();
    let applied = new Set<string>();
    const bring = () => {
      for (const item of ledger.missing) assertEquals(applied.has(item), false);
      for (const item of ledger.stale) assertEquals(applied.delete(item), true);
      for (const item of ledger.missing) applied.add(item);
    };
    for (const step of steps) {
      if (step.kind === "claim") ledger.claim(step.item);
      else if (step.kind === "release" && ledger.has(step.item)) ledger.release(step.item);
      else if (step.kind === "adopt") ledger.adopt(applied = new Set(step.items));
      else if (step.kind === "settle") {
        bring();
        ledger.settle();
      }
      assertEquals([...ledger.applied()].sort(), [...applied].sort());
    }
    bring();
    assertEquals([...applied].sort(), [...ledger.wanted].sort());
  }));
});
