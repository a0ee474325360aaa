/**
 * Reads the output of a tool. A missing tool and a refusal are results, too.
 *
 * @module
 */
import type { CommandResult, CommandRunner } from "../../../lib/os/command_runner.ts";
import { firstLine, saysNotPermitted, type TryOptions, tryTool } from "../probe/try_tool.ts";

/** The result: the output, nothing to read, or the reason for a failure. */
export type Seen<T> =
  | { readonly state: "seen"; readonly value: T }
  | { readonly state: "absent"; readonly reason: string }
  | { readonly state: "refused"; readonly reason: string };

export type AskOptions = Pick<TryOptions, "onLine" | "signal" | "timeoutMs">;

/** A machine that is busy with a large rule set answers late. */
const TIMEOUT_MS = 30_000;

/** Runs a tool. Missing: `absent`. Any other failure, an exit code too: `refused`. */
export async function askTool(
  commands: CommandRunner,
  line: readonly [program: string, ...args: string[]],
  options: AskOptions = {},
): Promise<Seen<string>> {
  const answer = await tryTool({ commands }, line, { timeoutMs: TIMEOUT_MS, ...options });
  if (answer.kind === "missing") return { state: "absent", reason: answer.reason };
  if (answer.kind !== "ended") return { state: "refused", reason: answer.reason };
  const { code, out: stdout, err: stderr } = answer;
  if (code === 0) return { state: "seen", value: stdout };
  return { state: "refused", reason: reasonOfExit(line[0], { code, stdout, stderr }) };
}

/**
 * Reads a file of `/proc`, which Deno itself opens to nothing short of all permissions. `absent`: there
 * is none, since the part of the kernel that has it is not loaded. Looking does not load it.
 */
export async function readProcFile(
  commands: CommandRunner,
  path: string,
  options: AskOptions = {},
): Promise<Seen<string>> {
  const seen = await askTool(commands, ["cat", path], options);
  if (seen.state !== "refused" || !seen.reason.includes("No such file")) return seen;
  return { state: "absent", reason: `${path} is not there` };
}

/**
 * Whether a refusal is due to missing permission; then this process could remove nothing either.
 */
export function wantsRights(reason: string): boolean {
  return saysNotPermitted(reason);
}

/** The reason of an exit code, in the tool's words. */
export function reasonOfExit(program: string, { code, stderr }: CommandResult): string {
  // iptables-nft warns so whenever legacy tables exist, also when it did its work.
  const words = stderr.replaceAll(/^# Warning: .*$/gm, "")
    // The kernel's reason is on a line below the name of the program.
    .replace(/^\S+ v[\d.]+ \(\w+\):\s*\n/m, "");
  return firstLine(words) || `${program} ended with ${code}`;
}
