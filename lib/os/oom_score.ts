/**
 * How likely the kernel ends this process when memory runs out, through the tool `choom`: the file
 * `/proc/self/oom_score_adj` is closed to a Deno process that has less than all permissions.
 *
 * @module
 */
import { CommandError, type CommandRunner } from "./command_runner.ts";

/** From -1000 (never) to 1000 (first). */
interface OomScore {
  readonly pid: number;
  readonly adjust: number;
}

/** What became of it. */
type OomScoreOutcome =
  | { readonly state: "kept" | "changed" }
  | { readonly state: "refused"; readonly reason: string };

/**
 * Sets the score of a process, unless it is so already, as under a unit with `OOMScoreAdjust`.
 * Never throws: only root may go below what the process was started with, and it works without.
 */
export async function setOomScore(
  commands: CommandRunner,
  { pid, adjust }: OomScore,
): Promise<OomScoreOutcome> {
  try {
    const before = await commands.run("choom", ["-p", String(pid)]);
    const found = /adjust value: (-?\d+)/.exec(before.stdout)?.[1];
    if (found !== undefined && Number(found) === adjust) return { state: "kept" };
    const { code, stderr } = await commands.run("choom", ["-n", String(adjust), "-p", String(pid)]);
    if (code === 0) return { state: "changed" };
    return { state: "refused", reason: stderr.trim() || `choom ended with code ${code}` };
  } catch (error) {
    if (!(error instanceof CommandError)) throw error;
    return { state: "refused", reason: error.message };
  }
}
