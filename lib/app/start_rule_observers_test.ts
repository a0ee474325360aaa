import { assertEquals } from "@std/assert";
import { FakeClock } from "../../tests/support/fake_clock.ts";
import { FakeCommandRunner } from "../../tests/support/fake_command_runner.ts";
import { MemoryLogger } from "../../tests/support/memory_logger.ts";
import { startRuleObservers } from "./start_rule_observers.ts";
import { TaskGroup } from "./task_group.ts";

for (const [usesConntrack, expected] of [[true, 2], [false, 0]] as const) {
  const mode = usesConntrack ? "writes rules" : "forwards by itself";
  Deno.test(`startRuleObservers() has ${expected} observers for a mode that ${mode}`, async () => {
    const tasks = new TaskGroup(new AbortController().signal);
    const observers = startRuleObservers(
      {
        ...{ clock: new FakeClock(), commands: new FakeCommandRunner() },
        ...{ logger: new MemoryLogger(), metrics: { conntrackReconciled: () => {} } },
      },
      tasks,
      { backends: [{ usesConntrack }] },
    );
    tasks.stop();
    await tasks.ended();
    assertEquals(observers.length, expected);
  });
}
