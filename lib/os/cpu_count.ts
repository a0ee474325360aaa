import { CommandError, type CommandRunner } from "./command_runner.ts";

/**
 * Returns the number of CPUs of the machine. `navigator.hardwareConcurrency` is only used if
 * `nproc` is missing: it depends on the affinity and CPU quota of this process, and kernel tables
 * must not shrink because a container has half a core.
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
