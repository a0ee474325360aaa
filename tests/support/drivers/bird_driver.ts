/**
 * Syncs the plan of its argument to a BIRD, says so, and waits to be killed.
 *
 * @module
 */
import { BirdDataPlane } from "../../../backends/announce/bird/data_plane.ts";
import { systemClock } from "../../../lib/os/clock.ts";
import { systemCommandRunner } from "../../../lib/os/command_runner.ts";
import { MemoryLogger } from "../fakes/memory_logger.ts";

const { plan, paths } = JSON.parse(Deno.args[0] ?? "");
const dataPlane = new BirdDataPlane(
  {
    clock: systemClock,
    commands: systemCommandRunner,
    logger: new MemoryLogger(),
    random: Math.random,
  },
  { paths },
);
await dataPlane.sync(plan);
await Deno.stdout.write(new TextEncoder().encode("synced\n"));
await new Promise(() => setInterval(() => {}, 60_000));
