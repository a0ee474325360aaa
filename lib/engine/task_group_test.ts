import { assertEquals, assertRejects } from "@std/assert";
import { whenAborted } from "../os/when_aborted.ts";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import { MemoryLogger } from "../../tests/support/fakes/memory_logger.ts";
import { TaskGroup } from "./task_group.ts";

Deno.test("TaskGroup ends all tasks when the outer signal is aborted", async () => {
  const outer = new AbortController();
  const group = new TaskGroup(outer.signal);
  const ended: string[] = [];
  for (const name of ["one", "two"]) {
    group.run(name, async (signal) => {
      await whenAborted(signal);
      ended.push(name);
    });
  }
  outer.abort();
  await group.stopped();
  await group.ended();
  assertEquals(ended, ["one", "two"]);
});

Deno.test("TaskGroup ends all tasks when one fails, and passes the failure on", async () => {
  const group = new TaskGroup(new AbortController().signal);
  let ended = false;
  group.run("patient", async (signal) => {
    await whenAborted(signal);
    ended = true;
  });
  group.run("hasty", () => Promise.reject(new Error("no such server")));
  await group.stopped();
  await assertRejects(() => group.ended(), Error, "no such server");
  assertEquals(ended, true);
});

Deno.test("TaskGroup ignores an error after the end", async () => {
  const group = new TaskGroup(new AbortController().signal);
  group.run("clumsy", async (signal) => {
    await whenAborted(signal);
    throw new Error("aborted");
  });
  group.stop();
  await group.ended();
});

Deno.test("TaskGroup names a task that does not end within 15 s, and continues without it", async () => {
  const stage = { clock: new FakeClock(), logger: new MemoryLogger() };
  const group = new TaskGroup(new AbortController().signal);
  group.run("stubborn", () => new Promise(() => {}));
  group.run("polite", whenAborted);
  group.stop();
  let ended = false;
  const ending = group.endedInTime(stage).then(() => ended = true);
  await stage.clock.advance(14_999);
  assertEquals(ended, false);
  await stage.clock.advance(1);
  await ending;
  assertEquals(stage.logger.lines.map(({ fields }) => fields), [{ tasks: ["stubborn"] }]);
});

Deno.test("TaskGroup leaves no timer behind when all tasks end in time", async () => {
  const stage = { clock: new FakeClock(), logger: new MemoryLogger() };
  const group = new TaskGroup(new AbortController().signal);
  group.run("polite", whenAborted);
  group.run("hasty", () => Promise.reject(new Error("no such server")));
  await assertRejects(() => group.endedInTime(stage), Error, "no such server");
  assertEquals([stage.clock.pendingTimers, stage.logger.lines], [0, []]);
});
