import { serviceSyncEvent } from "../../../tests/support/builders/sync_events.ts";
import { assertEquals } from "@std/assert";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import { FakeCommandRunner } from "../../../tests/support/fakes/fake_command_runner.ts";
import { MemoryLogger } from "../../../tests/support/fakes/memory_logger.ts";
import {
  testPlanChanges,
  testProxyPlan,
  testServicePlan,
} from "../../../tests/support/builders/service_plans.ts";
import { startConntrackCleaner } from "./service_controller.ts";
import { TaskGroup } from "../../engine/task_group.ts";

async function commandsAfterSync(usesConntrack: boolean): Promise<string[]> {
  const clock = new FakeClock();
  const commands = new FakeCommandRunner().on("conntrack", {});
  const tasks = new TaskGroup(new AbortController().signal);
  const metrics = { conntrackReconciled: () => {} };
  const listeners = startConntrackCleaner(
    { clock, commands, metrics, logger: new MemoryLogger() },
    tasks,
    { backends: [{ usesConntrack }] },
  );
  const plan = testProxyPlan([testServicePlan({ protocol: "UDP", port: 53 })]);
  for (const each of listeners) {
    await each.on(serviceSyncEvent("synced", "IPv4", plan, testPlanChanges(plan)));
  }
  await clock.advance(0);
  tasks.stop();
  await tasks.ended();
  return commands.calls.map(({ line }) => line);
}

Deno.test("startConntrackCleaner() uses conntrack in modes whose packets the kernel tracks", async () => {
  assertEquals(await commandsAfterSync(true), [
    "conntrack -L -f ipv4 -p udp -o save --orig-port-dst 53",
  ]);
});

Deno.test("startConntrackCleaner() runs nothing for a mode that forwards by itself", async () => {
  assertEquals(await commandsAfterSync(false), []);
});
