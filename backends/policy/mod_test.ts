import { assertEquals } from "@std/assert";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import { FakeCommandRunner } from "../../tests/support/fakes/fake_command_runner.ts";
import { MemoryLogger } from "../../tests/support/fakes/memory_logger.ts";
import { POLICY_BACKENDS } from "./mod.ts";

for (const [tool, create] of Object.entries(POLICY_BACKENDS)) {
  Deno.test(`POLICY_BACKENDS.${tool} makes a data plane without doing anything`, async () => {
    const [clock, commands, logger] = [
      new FakeClock(),
      new FakeCommandRunner(),
      new MemoryLogger(),
    ];
    await using plane = create({ clock, commands, logger, random: () => 0 }, {
      family: "IPv6",
      syncPeriodMs: 30_000,
    });
    assertEquals([plane.tool, plane.family], [tool, "IPv6"] as never);
    assertEquals([clock.pendingTimers, commands.calls, logger.lines], [0, [], []] as never);
  });
}
