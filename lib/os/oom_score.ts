/**
 * Sets how likely the kernel ends this process when memory runs out, through the tool `choom`: Deno
 * opens `/proc/self/oom_score_adj` only with all permissions.
 *
 * @module
 */
import { CommandError, type CommandRunner } from "./command_runner.ts";

/** From -1000 (never) to 1000 (first). */
interface OomScore {
  readonly pid: number;
  readonly adjust: number;
}

/** The result. */
type OomScoreOutcome =
  | { readonly state: "kept" | "changed" }
  | { readonly state: "refused"; readonly reason: string };

/**
 * Sets the score of a process, unless it already has it, as under a unit with `OOMScoreAdjust`.
 * Never throws: only root may go below the initial value, and kube-relay works without.
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
