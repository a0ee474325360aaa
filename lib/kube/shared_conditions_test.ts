import { assertEquals, assertStrictEquals } from "@std/assert";
import { sharedConditions } from "./shared_conditions.ts";

const VALUES = [undefined, false, true] as const;

Deno.test("sharedConditions() says what it was told, in one object for each combination", () => {
  const seen = new Set<object>();
  for (const ready of VALUES) {
    for (const serving of VALUES) {
      for (const terminating of VALUES) {
        const conditions = sharedConditions({ ready, serving, terminating });
        assertEquals([conditions.ready, conditions.serving, conditions.terminating], [
          ready,
          serving,
          terminating,
        ]);
        assertStrictEquals(sharedConditions({ ready, serving, terminating }), conditions);
        seen.add(conditions);
      }
    }
  }
  assertEquals(seen.size, 27);
  assertEquals(Object.keys(sharedConditions({ ready: true, serving: undefined })), ["ready"]);
});
