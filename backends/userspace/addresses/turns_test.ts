import { assertEquals, assertRejects } from "@std/assert";
import { Turns } from "./turns.ts";

Deno.test("Turns runs a task only when the one before is done, failed or not", async () => {
  const turns = new Turns();
  const seen: string[] = [];
  const gate = Promise.withResolvers<void>();
  const first = turns.take(async () => {
    seen.push("first starts");
    await gate.promise;
    seen.push("first ends");
    throw new Error("first fails");
  });
  const second = turns.take(() => {
    seen.push("second");
    return Promise.resolve(2);
  });
  const failing = assertRejects(() => first, Error, "first fails");
  gate.resolve();
  await failing;
  assertEquals(await second, 2);
  assertEquals(seen, ["first starts", "first ends", "second"]);
});
