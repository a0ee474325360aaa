/**
 * How many CPUs the machine has.
 *
 * @module
 */
import { CommandError, type CommandRunner } from "./command_runner.ts";

/**
 * CPUs of the machine. `navigator.hardwareConcurrency` is only the way out where `nproc` is missing:
 * it counts what the affinity and the CPU quota of this process leave, and kernel tables must not
 * shrink because a container is given half a core.
 */
export async function cpuCount(commands: CommandRunner): Promise<number> {
  try {
    const { code, stdout } = await commands.run("nproc", ["--all"]);
    const count = Number(stdout.trim());
    if (code === 0 && Number.isInteger(count) && count > 0) return count;
  } catch (error) {
    if (!(error instanceof CommandError)) throw error;
  }
  return navigator.hardwareConcurrency;
}
