import { assertEquals, assertRejects } from "@std/assert";
import { TaskGroup } from "./task_group.ts";

function untilAborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) =>
    signal.addEventListener("abort", () => resolve(), { once: true })
  );
}

Deno.test("TaskGroup ends all tasks when the outer signal is aborted", async () => {
  const outer = new AbortController();
  const group = new TaskGroup(outer.signal);
  const ended: string[] = [];
  for (const name of ["one", "two"]) {
    group.run(name, async (signal) => {
      await untilAborted(signal);
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
    await untilAborted(signal);
    ended = true;
  });
  group.run("hasty", () => Promise.reject(new Error("no such server")));
  await group.stopped();
  await assertRejects(() => group.ended(), Error, "no such server");
  assertEquals(ended, true);
});

Deno.test("TaskGroup does not take an error after the end for a failure", async () => {
  const group = new TaskGroup(new AbortController().signal);
  group.run("clumsy", async (signal) => {
    await untilAborted(signal);
    throw new Error("aborted");
  });
  group.stop();
  await group.ended();
});
