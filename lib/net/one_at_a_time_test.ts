import { assertEquals, assertRejects } from "@std/assert";
import { OneAtATime } from "./one_at_a_time.ts";

Deno.test("OneAtATime runs tasks in the order of asking, never two at once", async () => {
  const turns = new OneAtATime();
  const log: string[] = [];
  const gates = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const tasks = gates.map(({ promise }, index) =>
    turns.run(async () => {
      log.push(`begin ${index}`);
      await promise;
      log.push(`end ${index}`);
      return index;
    })
  );
  gates[1]!.resolve();
  gates[0]!.resolve();
  assertEquals(await Promise.all(tasks), [0, 1]);
  assertEquals(log, ["begin 0", "end 0", "begin 1", "end 1"]);
});

Deno.test("OneAtATime continues after a task that fails", async () => {
  const turns = new OneAtATime();
  const failing = turns.run(() => Promise.reject(new Error("no")));
  const next = turns.run(() => Promise.resolve("yes"));
  await assertRejects(() => failing, Error, "no");
  assertEquals(await next, "yes");
});
